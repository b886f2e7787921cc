"""How the benchmarks compare: all take turns, so that what disturbs the machine disturbs all."""

import statistics


def medians(measures, rounds):
    """For each name the median over the rounds of what its function gives."""
    times = {who: [] for who in measures}
    for _ in range(rounds):
        for who, measure in measures.items():
            times[who].append(measure())
    return {who: statistics.median(t) for who, t in times.items()}
