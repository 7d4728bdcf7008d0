"""`python -m trueno._stubs`: write the stubs."""

from trueno._stubs import main

main()
