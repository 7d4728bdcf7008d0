"""`python -m trueno`: the command line where the console script is not on the path."""

from trueno.cli import main

main()
