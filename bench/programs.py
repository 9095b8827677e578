"""Makes ids in its own process, for programs.pl: the commands of Programs.java, for one thread, and `what` there is."""
import sys
import time
import uuid

from snowflake_ids import Snowflake

PART = 64
BATCH = 1000


def count_calls(call, until, part, increase):
    count, last = 0, 0
    while time.perf_counter_ns() < until:
        for _ in range(part):
            got = call()
        if increase and got <= last:
            raise AssertionError(f'{got} follows {last}')
        last = got
        count += part
    return count


def main():
    layout, registry = sys.argv[1:]
    ids = Snowflake(registry, name='bench', layout=layout)
    what = {'ids': ids.next, 'batch': lambda: ids.next(BATCH)[-1], 'clock': time.time_ns, 'uuid': uuid.uuid4}
    for line in sys.stdin:
        command, *words = line.rstrip('\n').split('\t')
        if command == 'what':
            print(*what, flush=True)
            continue
        name, _, milliseconds = words
        begin = time.perf_counter_ns()
        count = count_calls(what[name], begin + int(milliseconds) * 1_000_000, 1 if name == 'batch' else PART,
                            name in ('ids', 'batch'))
        if name == 'batch':
            count *= BATCH
        print(count * 1_000_000_000 // (time.perf_counter_ns() - begin), flush=True)
    ids.close()


main()
