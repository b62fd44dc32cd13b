"""A client in a process of its own, to be stopped in its sleep."""

import sys

import chappe.blocking


def main(url: str, as_: str) -> None:
    """Connect, say so, and say again what each message holds."""
    with chappe.blocking.connect(url, as_=as_) as client:
        sys.stdout.write("connected\n")
        sys.stdout.flush()
        for message in client:
            sys.stdout.write(f"{message.data}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
