"""What this machine allows, measured in the run that it is compared in."""
import pathlib
import re
import subprocess
import tempfile


class Limits:
    """Multiply-adds by registers alone, in operations a second, and bytes a second that all cores read from memory."""

    def __init__(self, folder: pathlib.Path):
        """`folder` holds rc-opt and rc-tune. The process's cores count."""
        run = lambda *command: subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
        with tempfile.TemporaryDirectory() as work:
            file = pathlib.Path(work) / "here.toml"
            file.write_text(run(folder / "rc-opt", "--print-target", "--target=cpu"))
            measured = run(folder / "rc-tune", "--device=cpu", "--calibrate", file)
        figure = lambda name: float(re.search(rf"^{name} = ([\d.e+-]+)", measured, re.M)[1])
        self.operations, self.bytes = figure("flops_f32") * 1e12, figure("bandwidth") * 1e9

    def milliseconds(self, operations: float = 0.0, nbytes: float = 0.0) -> float:
        """The least that so much takes: as long as its arithmetic or its memory, whichever is longer."""
        return 1e3 * max(operations / self.operations, nbytes / self.bytes)

    def __str__(self):
        return f"{self.operations / 1e9:.0f} GFLOP/s by registers alone, {self.bytes / 1e9:.0f} GB/s read from memory"
