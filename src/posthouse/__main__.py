"""`python -m posthouse`: the same as the command `posthouse`."""

from posthouse.cli.main import main

if __name__ == "__main__":
    main()
