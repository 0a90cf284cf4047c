"""Measures redis-py's Lock (asyncio) and python-redis-lock (threads) like the benchmark's own systems: it gets the same
tasks in the same protocol. See README.md, "The protocol of a worker".
"""

import asyncio
import json
import os
import platform
import sys
import threading
import time
from collections import Counter
from importlib.metadata import version

import redis
import redis.asyncio
import redis_lock

# The delay of redis-py-fast, or another one to be tried. The README explains the choice.
FAST_MS = int(os.environ.get("PEER_RETRY_MS", "5"))

# redis-py: how long a task sleeps between two tries, in seconds.
SLEEP_S = {"redis-py": 0.1, "redis-py-fast": FAST_MS / 1000}

SETTINGS = {
    "redis-py": "asyncio; defaults: retry after 100 ms, no expiry, not renewed",
    "redis-py-fast": f"asyncio; retry after {FAST_MS} ms, no expiry, not renewed",
    "python-redis-lock": "a thread for each task; defaults: BLPOP until it is signalled, no expiry, not renewed",
}


def about():
    python = f"python {platform.python_version()}"
    client = f"redis-py {version('redis')}, hiredis {version('hiredis')}, {python}"
    versions = dict.fromkeys(SLEEP_S, client)
    versions["python-redis-lock"] = f"{version('python-redis-lock')}, {client}"
    pool = "a pool with a connection for each task"
    return {"systems": {s: {"version": versions[s], "settings": f"{SETTINGS[s]}; {pool}"} for s in SETTINGS}}


def bucket(us):
    """Returns the greatest wait of the same bucket: eight binary digits, so less than one percent off."""
    shift = max(us.bit_length() - 8, 0)
    return (((us >> shift) + 1) << shift) - 1


class Task:
    """The work and the figures of one task. It uses the clock, and is independent of the lock."""

    def __init__(self, spec, number, started):
        (self.use, self.prefix), = spec["names"].items()
        self.number, self.started = number, started
        (kind, span), = spec["span"].items()
        self.each = span["each"] if kind == "pairs" else None
        self.from_s = span["warm_up_ms"] / 1000 if kind == "window" else 0.0
        self.to_s = self.from_s + span["window_ms"] / 1000 if kind == "window" else None
        self.served, self.pairs, self.waits = 0, 0, Counter()

    def kept_name(self):
        if self.use == "one":
            return self.prefix
        return f"{self.prefix}:{self.number}" if self.use == "per-task" else None

    def fresh_name(self):
        return f"{self.prefix}:{self.number}:{self.pairs}"

    def is_over(self):
        if self.each is not None:
            return self.pairs >= self.each
        return time.monotonic() - self.started >= self.to_s

    def note(self, wait_s):
        self.pairs += 1
        at_s = time.monotonic() - self.started
        if self.each is not None or self.from_s <= at_s < self.to_s:
            self.served += 1
            self.waits[bucket(int(wait_s * 1_000_000))] += 1


def limit_s(spec):
    """Returns the time after which a run counts as hanging: no lock waits for as long."""
    (kind, span), = spec["span"].items()
    planned_ms = span["each"] * 20 if kind == "pairs" else span["warm_up_ms"] + span["window_ms"]
    return 60 + planned_ms / 1000


def report(spec, tasks, begun, cpu_before):
    cpu_us = int((time.process_time() - cpu_before) * 1_000_000)
    (kind, span), = spec["span"].items()
    counted_us = span["window_ms"] * 1000 if kind == "window" else int((time.monotonic() - begun) * 1_000_000)
    waits = sum((task.waits for task in tasks), Counter())
    return {
        "served": [task.served for task in tasks],
        "pairs": sum(task.pairs for task in tasks),
        "counted_us": counted_us,
        "cpu_us": cpu_us,
        "waits": list(waits.items()),
    }


def await_go():
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        raise RuntimeError("the run was aborted")


class Asyncio:
    """redis-py: a task is one of asyncio's."""

    def __init__(self, spec):
        self.spec = spec
        self.sleep_s = SLEEP_S[spec["system"]]

    async def main(self):
        spec = self.spec
        # A command keeps a connection until it is answered, and the default pool of 100 refuses the next command.
        self.client, self.counter = (
            redis.asyncio.from_url(spec["url"], max_connections=max(100, spec["tasks"])) for _ in range(2)
        )
        await self.counter.ping()
        # To open a thousand connections takes longer than a run's warm-up.
        pool = self.client.connection_pool
        opened = [await pool.get_connection() for _ in range(spec["tasks"])]
        for connection in opened:
            await pool.release(connection)
        if "used" in spec["names"]:
            await self.all_tasks()
        await asyncio.to_thread(await_go)
        begun, cpu_before = time.monotonic(), time.process_time()
        return report(spec, await self.all_tasks(), begun, cpu_before)

    async def all_tasks(self):
        started = time.monotonic()
        tasks = [Task(self.spec, number, started) for number in range(self.spec["tasks"])]
        await asyncio.wait_for(asyncio.gather(*(self.one_task(task) for task in tasks)), limit_s(self.spec))
        return tasks

    async def one_task(self, task):
        key, name = self.spec["counter"], task.kept_name()
        kept = self.client.lock(name, sleep=self.sleep_s) if name else None
        while not task.is_over():
            lock = kept or self.client.lock(task.fresh_name(), sleep=self.sleep_s)
            asked = time.monotonic()
            await lock.acquire()
            wait_s = time.monotonic() - asked
            if key:
                await self.counter.set(key, int(await self.counter.get(key) or 0) + 1)
            await lock.release()
            task.note(wait_s)


class Threads:
    """python-redis-lock: a task is a thread."""

    def __init__(self, spec):
        self.spec = spec
        # A waiter keeps its connection in BLPOP, and the default pool of 100 refuses the next waiter.
        size = max(100, spec["tasks"])
        self.client, self.counter = (redis.from_url(spec["url"], max_connections=size) for _ in range(2))
        self.counter.ping()
        # To open a thousand connections takes longer than a run's warm-up.
        pool = self.client.connection_pool
        opened = [pool.get_connection() for _ in range(spec["tasks"])]
        for connection in opened:
            pool.release(connection)

    def main(self):
        if "used" in self.spec["names"]:
            self.all_tasks()
        await_go()
        begun, cpu_before = time.monotonic(), time.process_time()
        return report(self.spec, self.all_tasks(), begun, cpu_before)

    def all_tasks(self):
        started = time.monotonic()
        until = started + limit_s(self.spec)
        tasks = [Task(self.spec, number, started) for number in range(self.spec["tasks"])]
        threads = [threading.Thread(target=self.one_task, args=(task,), daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))
            if thread.is_alive():
                raise RuntimeError("the run did not end")
        return tasks

    def one_task(self, task):
        key, name = self.spec["counter"], task.kept_name()
        kept = redis_lock.Lock(self.client, name) if name else None
        while not task.is_over():
            lock = kept or redis_lock.Lock(self.client, task.fresh_name())
            asked = time.monotonic()
            lock.acquire()
            wait_s = time.monotonic() - asked
            if key:
                self.counter.set(key, int(self.counter.get(key) or 0) + 1)
            lock.release()
            task.note(wait_s)


def fail(error):
    print(f"python peer: {error or type(error).__name__}", file=sys.stderr, flush=True)
    os._exit(1)


def main():
    if sys.argv[1:] == ["--about"]:
        print(json.dumps(about()))
        return
    # If one thread fails, the run fails.
    threading.excepthook = lambda failed: fail(failed.exc_value)
    try:
        spec = json.loads(sys.stdin.readline())
        if spec["system"] not in SETTINGS:
            raise ValueError(f"no such system here: \"{spec['system']}\"")
        done = asyncio.run(Asyncio(spec).main()) if spec["system"] in SLEEP_S else Threads(spec).main()
        print(json.dumps(done, separators=(",", ":")), flush=True)
    except Exception as error:
        fail(error)


main()
