# check_id_pool.py
#	  Checks the class of doc/clients/python.md.
import os
import threading
import time

import psycopg2

from id_pool import MOST, IdPool

THREADS = 4
busy = threading.Lock()


def connect():
    connection = psycopg2.connect("")
    connection.autocommit = True
    return connection.cursor()


# Which ids there are is asked by another connection than the pool's.
pool_cursor, cursor = connect(), connect()


def fetch(n):
    assert busy.acquire(blocking=False), "two threads ask the server at once"
    pool_cursor.execute("SELECT snowflake_nextval_batch(%s)", (n,))
    ids = [row[0] for row in pool_cursor]
    busy.release()
    return ids


def newest():
    cursor.execute("SELECT snowflake_nextval()")
    return cursor.fetchone()[0]


def grow(pool, n):
    """Empties the pool until it gets n ids at once; returns the ids."""
    ids = []
    while pool.n < n:
        ids.append(pool.next())
        assert len(ids) < 100_000, f"n is {pool.n} after so many ids"
    return ids


def next_pool(pool):
    """Takes ids until the pool was filled again; the first of these is taken."""
    now = newest()
    while pool.next() < now:
        pass


def check_growth(pool):
    ids = grow(pool, MOST)
    for _ in range(3 * MOST):
        ids.append(pool.next())
        assert pool.n <= MOST, f"n is {pool.n}"
    assert all(a < b for a, b in zip(ids, ids[1:])), "ids do not increase"
    return ids


def check_size(pool):
    """So many ids come from one pool: they are less than one that the server issues next."""
    for _ in range(100):
        next_pool(pool)
        n, now, count = pool.n, newest(), 1
        while pool.next() < now:
            count += 1
        if count == n:
            return
    raise AssertionError(f"n is {n}, but there were {count} ids")


def check_threads(pool, ids):
    taken = [[] for _ in range(THREADS)]
    failed = []

    def take(mine):
        try:
            for _ in range(20_000):
                mine.append(pool.next())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    every = sum(taken, ids)
    assert len(set(every)) == len(every), "an id came twice"
    for mine in taken:
        assert mine == sorted(mine), "ids of a thread do not increase"


def check_age(pool):
    grow(pool, 1000)
    next_pool(pool)
    n, now = pool.n, newest()
    time.sleep(1.1)
    assert pool.next() > now, "an id older than a second was used"
    assert pool.n == n // 2, f"n was {n} and is {pool.n}"


def check_fork(pool):
    global pool_cursor
    grow(pool, 1000)
    next_pool(pool)
    reader, writer = os.pipe()
    if os.fork() == 0:
        pool_cursor = connect()
        os.write(writer, str(pool.next()).encode())
        os._exit(0)
    os.wait()
    in_child = int(os.read(reader, 100))
    now = newest()
    while (order_id := pool.next()) < now:
        assert order_id != in_child, "two processes have the same id"


pool = IdPool(fetch)
check_threads(pool, check_growth(pool))
check_size(pool)
check_age(pool)
check_fork(pool)
