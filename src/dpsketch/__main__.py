"""`python -m dpsketch` is the command line."""

from dpsketch.cli.app import run

if __name__ == "__main__":
    run()
