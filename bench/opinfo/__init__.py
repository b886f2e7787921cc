"""PyTorch's operator tests (OpInfo) through rc: running samples, judging results, the table of what runs."""
