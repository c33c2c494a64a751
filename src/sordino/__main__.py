"""`python -m sordino` is the command `sordino`."""

from sordino.cli import main

main(prog_name="sordino")
