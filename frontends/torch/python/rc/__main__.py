"""`rc --version`: the versions of what rc is made of, and the processors that it knows."""

import argparse

from rc._native import versions


def main() -> None:
    parser = argparse.ArgumentParser(prog="rc", description="A compiler of tensor graphs, as a Python package: import rc")
    action = parser.add_argument("-V", "--version", action="store_true", help="print versions and the processors that rc knows")
    if not parser.parse_args().version:
        parser.error(f"nothing to do: {action.option_strings[1]} is all that there is")
    print(f"rc {versions()}")


if __name__ == "__main__":
    main()
