"""Tables of the benchmarks: rc, its peers and what the machine allows, as lines and as a picture."""
import math
import pathlib
import statistics


class Figures:
    """Medians in milliseconds. Cases of one group share a geometric mean."""

    def __init__(self, title: str):
        self.title, self.rows = title, []
        print(title, flush=True)

    def add(self, group: str, name: str, ms: dict[str, float], limit: float, note: str = ""):
        """`ms`: of rc and of each peer that ran; `limit`: what the machine allows."""
        best = min((t for who, t in ms.items() if who != "rc"), default=math.nan)
        self.rows.append((group, name, ms, limit, best))
        times = "  ".join(f"{who} {t:.3f}" for who, t in ms.items())
        ratio = f"rc/best {ms['rc'] / best:.2f}" if len(ms) > 1 else "no peer"
        print(f"{name:32}{times}  limit {limit:.3f} ms  {ratio}  limit/rc {limit / ms['rc']:.2f}  {note}".rstrip(), flush=True)

    def close(self, picture: pathlib.Path):
        """The means, and the picture."""
        for group in dict.fromkeys(row[0] for row in self.rows):
            ratios = [ms["rc"] / best for at, _, ms, _, best in self.rows if at == group and math.isfinite(best)]
            if ratios:
                late = sum(r > 1 for r in ratios)
                print(f"{group}: rc / best peer {statistics.geometric_mean(ratios):.2f}, {late} of {len(ratios)} over 1", flush=True)
        compared = [row for row in self.rows if math.isfinite(row[4])]
        if compared:
            self._draw(compared, picture)

    def _draw(self, rows: list, picture: pathlib.Path):
        """Each case's times as multiples of its best peer's: left of the line is faster."""
        try:
            import matplotlib
        except ImportError:
            print("no picture: matplotlib is not installed (bench/run.sh installs it)", flush=True)
            return
        matplotlib.use("Agg")
        from matplotlib import pyplot

        names = list(dict.fromkeys(who for row in rows for who in row[2]))
        figure, axes = pyplot.subplots(figsize=(10, 1.6 + 0.28 * len(rows)), layout="constrained")
        for who in names:
            at = [(ms[who] / best, y) for y, (_, _, ms, _, best) in enumerate(rows) if who in ms]
            marker = dict(marker="o", s=60, zorder=3) if who == "rc" else dict(marker="x", s=35)
            axes.scatter(*zip(*at), label=who, **marker)
        limits = [(limit / best, y) for y, (*_, limit, best) in enumerate(rows)]
        axes.scatter(*zip(*limits), label="the machine's limit", marker="|", s=120, color="black")
        axes.axvline(1, color="gray", linewidth=0.8)
        axes.set(xscale="log", xlabel="time / best peer's time", yticks=range(len(rows)), yticklabels=[row[1] for row in rows])
        low, high = axes.get_xlim()
        axes.set_xticks([x for x in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= x <= high])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_title("\n".join(self.title.split(": ")), fontsize=9, loc="left")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture)
        pyplot.close(figure)
        print(f"picture: {picture}", flush=True)
