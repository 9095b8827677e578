"""The lease protocol, as transitions, with its invariants.

Read README first.  The order here is: the world and what is in it, the invariants, the
assumptions, and then the actions: of a registry, of its servers, of its owners, and of nodes.
Each action is one function, and its name is that of the function that it stands for in the
registry's SQL or in the lease machine.  Nothing is bounded: leases, nodes, numbers, ticks, servers,
registries and entries of timeline histories are as many as there may be, and times are any integers.

A rule of the contract stands in an action as rule('its-name', what it demands), or as
kept('its-name') where it says what the new state is.  It can be taken out by that name: stories.py
says what happens then.
"""
from z3 import And, BoolSort, Const, Function, If, Implies, IntSort, Not, Or

from world import (Cluster, Entry, Lease, Node, Number, Registry, Server, Tick, after, even, every,
                   greatest, kept, rule)

Int, Bool = IntSort(), BoolSort()

# ---------------------------------------------------------------------------------------------
# What never changes: what a lease, a call or a server is.  A state only says which of them exist.
# ---------------------------------------------------------------------------------------------

# A lease
number = Function('number', Lease, Number)          # its node number
owner = Function('owner', Lease, Node)              # the node that it was granted to
granter = Function('granter', Lease, Server)        # the server whose tables granted it
starts = Function('starts', Lease, Int)             # starts_at
leased_in = Function('leased_in', Lease, Int)       # the generation
granted_by = Function('granted_by', Lease, Int)     # the number of the call that granted it
fixed = Function('fixed', Lease, Bool)              # a fixed number, not an automatic one
order = Function('order', Lease, Int)               # proof only: leases in the order of grants
succeeds = Function('succeeds', Lease, Registry, Bool)  # proof only: taken over before the grant

# A node
cluster = Function('cluster', Node, Cluster)        # it is one start of a server of this
hostile = Function('hostile', Node, Bool)           # its calls say anything; its ids are its own harm

# A call of a node: (node, number of the call)
sent_to = Function('sent_to', Node, Int, Server)        # what carries it out is in this place
asks = Function('asks', Node, Int, Bool)            # acquire_lease; otherwise renew or release
asks_for = Function('asks_for', Node, Int, Number, Bool)    # for one of these numbers,
asks_fixed = Function('asks_fixed', Node, Int, Bool)        # which are the node's own, fixed ones
asks_until = Function('asks_until', Node, Int, Int)     # up to this end
names = Function('names', Node, Int, Bool)          # it names a lease,
named = Function('named', Node, Int, Lease)         # this one,
says_end = Function('says_end', Node, Int, Bool)    # and says where its ids end; or they go on:
said_end = Function('said_end', Node, Int, Int)     # here
said_known = Function('said_known', Node, Int, Int)     # the end of all ids of this start, and of
said_floor = Function('said_floor', Node, Int, Int)     # those before the named lease's generation
said_ahead = Function('said_ahead', Node, Int, Int)     # max_ahead
said_clock = Function('said_clock', Node, Int, Int)     # the node's clock
said_made = Function('said_made', Node, Int, Int)   # when its cluster's own tables were made
says_uses = Function('says_uses', Node, Int, Bool)  # its cluster has used a registry:
said_uses = Function('said_uses', Node, Int, Registry)  # this one

# A server
registry = Function('registry', Server, Registry)   # an incarnation of tables
primary = Function('primary', Server, Server)       # the server that last wrote WAL that it replayed
place = Function('place', Server, Server)           # where calls reach it: it, or the server that it
                                                    # was before its tables had this incarnation
tables_of = Function('tables_of', Server, Cluster)  # whose own tables these are
history = Function('history', Server, Entry, Bool)  # its timeline history has this entry
entry = Function('entry', Server, Entry)            # the entry that its own promotion has written
turn = Function('turn', Server, Int)                # proof only: servers as they first ran

# Others
bit0 = Function('bit0', Number, Bool)               # bit 0 of the number, in every layout
begins = Function('begins', Tick, Int)              # a tick of some layout is a span of time
ends = Function('ends', Tick, Int)
least_ahead = Const('least_ahead', Int)             # the least max_ahead of all nodes (A4)
difference = Const('difference', Int)               # clocks of servers differ by less: 10 s (A3)

# ---------------------------------------------------------------------------------------------
# What changes.
# ---------------------------------------------------------------------------------------------
TABLES = dict(                                      # of a server; a standby has a copy
    made=(Server, Bool),                            # CREATE EXTENSION was carried out
    # node_number, one row for each number
    ended=(Server, Number, Int),                    # ended_until
    recorded=(Server, Number, Int),                 # recorded_until
    is_open=(Server, Number, Bool),                 # a lease is open:
    lease=(Server, Number, Lease),                  # this one,
    until=(Server, Number, Int),                    # up to here: leased_until
    last_call=(Server, Number, Int),                # the last call of its start
    # registry, one row
    generation=(Server, Int),
    counted=(Server, Entry, Bool),                  # the history entries that it has counted
    counted_at=(Server, Int),                       # when it counted last
    created=(Server, Int),                          # created_at
    floor=(Server, Int),                            # the time that its leases start at or after
    limit=(Server, Int),                            # the limit for ends
    window=(Server, Int),                           # the same, or the one before while it counts,
    lowered=(Server, Int),                          # which was lowered then
    taken=(Server, Registry, Bool),                 # taken over, with all that those took over
    took_over=(Server, Bool),                       # that is not empty
    closed=(Server, Bool),                          # close_registry() was carried out
    quiet=(Server, Int),                            # proof only: when it was closed, or stopped
    orders=(Server, Int),                           # proof only: how many orders it has carried out
)
STATE = dict(
    TABLES,
    now=(Int,),                                     # the time; clocks are up to `difference` ahead
    granted=(Lease, Bool),
    ran=(Server, Bool),                             # was writable once
    live=(Server, Bool),                            # is writable, or can be again
    left=(Server, Bool),                            # is a node of another server of its registry
    promoted_at=(Server, Int),                      # when it became so
    calls=(Node, Int),                              # the number of the last call that was sent
    done=(Node, Int, Bool),                         # that call was carried out
    out=(Node, Bool),                               # that call is out: its result would count
    dead=(Node, Bool),                              # crashed, stopped
    known=(Node, Int),                              # the end of the ids of all sealed leases,
    before=(Node, Int),                             # and of those of earlier generations and
                                                    # other registries than that of the newest
    newest=(Node, Lease),                           # the lease that it has had last
    result=(Lease, Int, Int, Bool),                 # a call had this result: lease, leased_until
    opened=(Lease, Bool),                           # the words were opened for it
    sealed=(Lease, Bool),                           # and sealed, as the lease machine knows; or
                                                    # they never will be opened, and its end is said
    bit=(Lease, Bool),                              # the sealed bit of the words
    limit_of=(Lease, Int),                          # the limit in shared memory
    end=(Lease, Int),                               # what sealing told as the end of its ids
    issued=(Lease, Tick, Bool),                     # an id with this tick and the lease's number
    uses_any=(Cluster, Bool),                       # the record `cluster.uses` is there,
    uses=(Cluster, Registry),                       # and says this
    made_at=(Cluster, Int),                         # created_at of its own tables
    latest=(Cluster, Lease),                        # proof only: the lease that was opened last
    may=(Lease, Int),                               # proof only: no id of the lease ends later,
)                                                   # and none ever will


def counts(a, n, c):
    """Whether the result of a call would count."""
    return And(a.out(n), c == a.calls(n), Not(a.dead(n)))


def may_be_opened(a, l):
    return And(a.granted(l), Not(hostile(owner(l))), Not(a.opened(l)),
               counts(a, owner(l), granted_by(l)))


def is_over(a, l):
    """No result can open or extend the lease any more."""
    return Or(a.sealed(l), a.dead(owner(l)), hostile(owner(l)),
              And(Not(a.opened(l)), Not(counts(a, owner(l), granted_by(l)))))


def issues_nothing(a, l):
    """The lease has issued no id, and never will."""
    return And(is_over(a, l), a.may(l) <= starts(l))


def has(a, n, l):
    """The node has had the lease: it opened it, or has dropped it, and names it from then on."""
    return And(owner(l) == n, Or(a.opened(l), a.sealed(l)))


def home(l):
    return registry(granter(l))


def is_akin(l, m):
    """The leases are of the same incarnation and generation, as far as a node can tell."""
    return And(home(l) == home(m), leased_in(l) == leased_in(m))


def has_counted(a, s):
    """All entries of the server's timeline history are counted, by their names."""
    return every(lambda e: Implies(history(s, e), a.counted(s, e)))


def is_plain(a, s):
    """Exactly one entry is not counted: that of its own promotion."""
    return every(lambda e: Implies(And(history(s, e), e != entry(s)), a.counted(s, e)))


def in_tables(a, s, l):
    k = number(l)
    return Or(a.may(l) <= a.ended(s, k),
              And(a.is_open(s, k), a.lease(s, k) == l, a.may(l) <= a.until(s, k)))


def is_over_for_all(a, s, l):
    """All leases that s grants of the number start at or after the end of this one."""
    return Or(a.may(l) <= a.created(s) + least_ahead, a.may(l) <= a.counted_at(s),
              a.may(l) <= a.floor(s), in_tables(a, s, l), issues_nothing(a, l))


def has_other_parity(a, s, l):
    """The tables of s grant the other half of the numbers, as soon as it has counted."""
    return bit0(number(l)) != grants_bit0(a, s)


def grants_bit0(a, s):
    """Bit 0 of the numbers that s grants: the generation's, or the next one's, which it counts."""
    return even(a.generation(s)) == Or(has_counted(a, s), a.closed(s))


def is_forgotten_by(a, s, l):
    """The tables of s know nothing of the lease but that it was over when they were made."""
    return And(a.taken(s, home(l)), Or(a.may(l) <= a.created(s) + least_ahead, issues_nothing(a, l)))


def can_be_renewed(a, s, l):
    k = number(l)
    return And(a.live(s), Not(a.closed(s)), has_counted(a, s), a.is_open(s, k),
               a.lease(s, k) == l, leased_in(l) == a.generation(s))


def is_related(a, s, r):
    return Or(registry(s) == r, a.taken(s, r))


def longest_window(a, s):
    return a.window(s) + difference


def quiet_since(a, q):
    """When the server granted or renewed for the last time, at the latest."""
    return If(And(a.live(q), Not(a.closed(q))), a.now(), a.quiet(q))


def has_all_orders(a, s):
    return every(lambda q: Implies(And(a.ran(q), registry(q) == registry(s)),
                                   a.orders(q) <= a.orders(s)))


def is_recorded(a, l):
    """The record of its cluster is this lease's registry, or a successor."""
    j = cluster(owner(l))
    return And(a.uses_any(j), Or(home(l) == a.uses(j), succeeds(a.latest(j), home(l))))


def is_forgotten(a, l):
    """It was over when its cluster's own tables were made."""
    return And(is_over(a, l), a.may(l) <= a.made_at(cluster(owner(l))) + least_ahead)


# ---------------------------------------------------------------------------------------------
# The invariants.
# ---------------------------------------------------------------------------------------------
def invariants(a):
    return {
        # The promise, for one registry: the next lease of a number starts at or after the end of
        # all earlier ones.
        'a number is leased again after the end of its leases': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), home(l) == home(m), number(l) == number(m),
                order(l) < order(m), Or(granter(l) == granter(m),
                                        And(Not(fixed(l)), Not(fixed(m))))),
            Or(a.may(l) <= starts(m), issues_nothing(a, l), issues_nothing(a, m)))),
        'only the newest lease of a number can be renewed': every(lambda s, l: Implies(
            can_be_renewed(a, s, l), And(granter(l) == s, every(lambda m: Implies(
                And(a.granted(m), home(l) == home(m), number(l) == number(m), l != m,
                    Or(granter(l) == granter(m), And(Not(fixed(l)), Not(fixed(m))))),
                order(m) < order(l)))))),

        # The same for fixed numbers.
        'fixed numbers follow one another': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), home(l) == home(m), number(l) == number(m),
                granter(l) != granter(m), Or(fixed(l), fixed(m)), order(l) < order(m)),
            Or(And(a.may(l) <= starts(m), Or(is_over(a, l), Not(a.live(granter(l))))),
               issues_nothing(a, l), issues_nothing(a, m)))),

        # The same for a registry and those that it has taken over.
        'a successor leases a number after the end of its leases': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), succeeds(m, home(l)), number(l) == number(m)),
            Or(a.may(l) <= starts(m), issues_nothing(a, l), issues_nothing(a, m)))),

        # A cluster that goes from one registry to another goes to a successor; or it has forgotten
        # what it used, and its leases start after all that.
        'a cluster uses a registry and its successors': every(lambda l, m: Implies(
            And(a.opened(l), a.opened(m), cluster(owner(l)) == cluster(owner(m))),
            Or(home(l) == home(m), succeeds(l, home(m)), succeeds(m, home(l)),
               And(is_over(a, l), a.may(l) <= starts(m)),
               And(is_over(a, m), a.may(m) <= starts(l))))),

        # The time field is the fencing token.
        'ids are within their lease': every(lambda l, t: Implies(
            a.issued(l, t), And(a.opened(l), starts(l) <= begins(t), ends(t) <= a.may(l)))),
        'the limit follows the row': every(lambda l: Implies(
            And(a.opened(l), Not(a.sealed(l)), Not(a.dead(owner(l)))), a.limit_of(l) <= a.may(l))),
        'the granter knows the end': every(lambda l: Implies(
            a.granted(l), in_tables(a, granter(l), l))),
        'each grant has its turn': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), l != m), order(l) != order(m))),

        # Calls and results.
        'the open lease of a number': every(lambda s, k: Implies(a.is_open(s, k), And(
            number(a.lease(s, k)) == k, a.granted(a.lease(s, k)), a.made(s),
            registry(s) == home(a.lease(s, k)), leased_in(a.lease(s, k)) <= a.generation(s),
            granted_by(a.lease(s, k)) <= a.last_call(s, k),
            starts(a.lease(s, k)) <= a.until(s, k)))),
        'a granted lease': every(lambda l: Implies(a.granted(l), And(
            a.ran(granter(l)), a.made(granter(l)), 0 < granted_by(l),
            granted_by(l) <= a.calls(owner(l)), a.done(owner(l), granted_by(l)),
            leased_in(l) <= a.generation(granter(l)),
            Implies(Not(fixed(l)), bit0(number(l)) == even(leased_in(l))),
            Implies(hostile(owner(l)), And(Not(a.opened(l)), a.may(l) <= starts(l)))))),
        'a result that counts is in the row': every(lambda l, c, u: Implies(a.result(l, c, u), And(
            a.granted(l), granted_by(l) <= c, c <= a.calls(owner(l)),
            Or(hostile(owner(l)), has(a, owner(l), l), c == granted_by(l)),
            Implies(And(counts(a, owner(l), c), Not(hostile(owner(l)))),
                    And(Not(a.sealed(l)), u <= a.may(l)))))),
        'an opened lease was granted': every(lambda l: And(
            Implies(a.sealed(l), a.bit(l)), Implies(Or(a.opened(l), a.sealed(l)), a.granted(l)))),
        'a call names the newest lease': every(lambda n, c, l: Implies(
            And(0 < c, c <= a.calls(n), names(n, c)),
            And(owner(named(n, c)) == n, a.granted(named(n, c)), Or(hostile(n), And(
                has(a, n, named(n, c)),
                Implies(And(has(a, n, l), granted_by(l) < c),
                        granted_by(l) <= granted_by(named(n, c))),
                Implies(And(a.granted(l), owner(l) == n, granted_by(named(n, c)) < granted_by(l),
                            granted_by(l) < c),
                        a.may(l) <= starts(l))))))),
        'a lease whose result was lost issues nothing': every(lambda l: Implies(
            And(a.granted(l), Not(a.opened(l)), Not(counts(a, owner(l), granted_by(l)))),
            a.may(l) <= starts(l))),
        'an end that was sent is true': every(lambda n, c: Implies(
            And(0 < c, c <= a.calls(n), says_end(n, c), Not(hostile(n))),
            And(names(n, c), a.sealed(named(n, c)), a.may(named(n, c)) <= said_end(n, c)))),
        'a call that may extend a lease names an open one': every(lambda n: Implies(
            And(counts(a, n, a.calls(n)), names(n, a.calls(n)), Not(says_end(n, a.calls(n))),
                Not(asks(n, a.calls(n))), Not(hostile(n))),
            Not(a.sealed(named(n, a.calls(n)))))),
        'sealing tells the end': every(lambda l: Implies(
            a.sealed(l), And(a.may(l) <= a.end(l),
                             Implies(a.opened(l), a.may(l) <= a.known(owner(l)))))),
        'a node knows its newest lease': every(lambda l: Implies(
            has(a, owner(l), l), And(
                has(a, owner(l), a.newest(owner(l))),
                granted_by(l) <= granted_by(a.newest(owner(l)))))),
        'a node knows the end of what its registry may not know': every(lambda l: Implies(
            And(a.sealed(l), a.opened(l), Not(is_akin(l, a.newest(owner(l))))),
            a.may(l) <= a.before(owner(l)))),
        'one lease of a node is open, the newest': every(lambda l, m: Implies(
            And(a.opened(l), has(a, owner(l), m), l != m, granted_by(l) <= granted_by(m)),
            a.sealed(l))),
        'a node that asks has sealed, or asks for other numbers': every(lambda n, c, l: Implies(
            And(0 < c, c <= a.calls(n), asks(n, c), Not(hostile(n))),
            And(least_ahead <= said_ahead(n, c), Implies(
                And(a.granted(l), owner(l) == n, granted_by(l) < c),
                Or(And(Not(a.opened(l)), a.may(l) <= starts(l)),
                   And(a.sealed(l), a.may(l) <= said_known(n, c),
                       Implies(names(n, c), Or(is_akin(l, named(n, c)),
                                               a.may(l) <= said_floor(n, c)))),
                   Not(And(asks_fixed(n, c), asks_for(n, c, number(l))))))))),
        'calls are granted one lease, in their order': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), owner(l) == owner(m), order(l) < order(m)),
            And(granted_by(l) != granted_by(m),
                Implies(granted_by(m) < granted_by(l), Not(a.opened(m)))))),
        'a node counts its calls from one': every(lambda n, c: And(
            0 <= a.calls(n), Implies(a.out(n), 0 < a.calls(n)),
            Implies(a.done(n, c), And(0 < c, c <= a.calls(n))))),

        # Servers and generations.
        'one server is in a place': every(lambda s, q: Implies(
            And(a.ran(s), a.ran(q), s != q), And(turn(s) != turn(q), Implies(
                And(place(s) == place(q), turn(s) < turn(q)), Not(a.live(s)))))),
        'a server that runs has its tables': every(lambda s: And(
            Implies(a.live(s), a.ran(s)), Implies(a.ran(s), a.made(s)),
            Implies(And(a.ran(s), Not(a.closed(s)), Not(has_counted(a, s))),
                    And(Not(a.counted(s, entry(s))), history(s, entry(s)), a.ran(primary(s)))))),
        'a standby has an earlier state': every(lambda s, e: Implies(
            And(a.made(s), Not(a.ran(s))), And(
                a.ran(primary(s)), a.made(primary(s)), registry(primary(s)) == registry(s),
                a.generation(s) <= a.generation(primary(s)),
                a.orders(s) <= a.orders(primary(s)),
                Implies(a.counted(s, e), a.counted(primary(s), e))))),
        'what was counted by name is the generation': every(lambda s: Implies(
            And(a.made(s), Not(a.ran(s)), a.orders(s) == a.orders(primary(s)),
                every(lambda e: Implies(history(primary(s), e), a.counted(s, e)))),
            a.generation(s) == a.generation(primary(s)))),
        'what a standby does not know is of one parity': every(lambda s, l: Implies(
            And(a.made(s), Not(a.ran(s)), a.granted(l), granter(l) == primary(s), Not(fixed(l))),
            Or(in_tables(a, s, l), issues_nothing(a, l), bit0(number(l)) == even(a.generation(s)),
               a.generation(s) != a.generation(primary(s))))),
        'two writable servers have different parities': every(lambda s, q: Implies(
            And(a.live(s), a.live(q), s != q, registry(s) == registry(q)), And(
                Or(a.closed(s), grants_bit0(a, s) != grants_bit0(a, q)),
                Or(a.closed(s), has_counted(a, s), is_plain(a, s))))),
        'what a server does not know is over, or of the other parity': every(lambda s, l: Implies(
            And(a.made(s), Or(a.live(s), a.closed(s)), a.granted(l), is_related(a, s, home(l)),
                Not(fixed(l))),
            Or(is_over_for_all(a, s, l), has_other_parity(a, s, l),
               And(Not(a.closed(s)), Not(has_counted(a, s)), a.may(l) <= a.promoted_at(s))))),
        'a server that does not know the parity waits for all': every(lambda s, l: Implies(
            And(a.live(s), Not(a.closed(s)), Not(has_counted(a, s)), Not(is_plain(a, s)),
                a.granted(l), is_related(a, s, home(l)), Not(fixed(l))),
            Or(a.may(l) <= a.promoted_at(s), is_forgotten_by(a, s, l)))),
        'another server of the same generation is over': every(lambda s, l: Implies(
            And(a.live(s), a.granted(l), home(l) == registry(s), granter(l) != s,
                leased_in(l) == If(has_counted(a, s), a.generation(s), a.generation(s) + 1)),
            Or(is_over_for_all(a, s, l), And(Not(has_counted(a, s)), Or(
                Not(is_plain(a, s)), a.may(l) <= a.promoted_at(s)))))),
        'or it waits for it': every(lambda s, l: Implies(
            And(a.live(s), Not(a.closed(s)), Not(has_counted(a, s)), Not(is_plain(a, s)),
                a.granted(l), home(l) == registry(s), granter(l) != s),
            a.may(l) <= a.promoted_at(s))),
        'a server that became a node grants nothing': every(lambda s, q: Implies(
            a.left(s), And(a.ran(s), Not(a.live(s)), Not(a.closed(s)), Implies(
                And(a.ran(q), place(q) == place(s)), turn(q) <= turn(s))))),
        'a promotion is not to come': every(lambda s: Implies(
            a.ran(s), a.promoted_at(s) <= a.now())),

        # The limit for ends.
        'no end is later than the limit allows': every(lambda s, l: Implies(
            And(a.made(s), a.granted(l), Or(
                a.taken(s, home(l)),
                And(registry(s) == home(l), a.orders(granter(l)) <= a.orders(s)))),
            Or(a.may(l) <= a.now(), is_forgotten_by(a, s, l),
               a.may(l) <= quiet_since(a, granter(l)) + longest_window(a, s)))),
        'an order for the limit is one': every(lambda s, q: Implies(
            And(a.made(s), a.made(q), registry(s) == registry(q), a.orders(s) == a.orders(q)),
            And(a.limit(s) == a.limit(q), a.limit(s) <= a.window(s), 0 <= a.limit(s)))),
        'what was lowered counts until it has passed': every(lambda s, l: Implies(
            And(a.made(s), a.granted(l), is_related(a, s, home(l)), a.limit(s) < a.window(s),
                Or(a.taken(s, home(l)), a.orders(granter(l)) <= a.orders(s))),
            Or(a.may(l) <= a.now(), is_forgotten_by(a, s, l),
               a.may(l) <= a.lowered(s) + a.window(s) + difference,
               a.may(l) <= quiet_since(a, granter(l)) + a.limit(s) + difference))),
        'a server is quiet since then': every(lambda s: Implies(
            Or(And(a.ran(s), Not(a.live(s))), And(a.made(s), a.closed(s))),
            a.quiet(s) <= a.now())),

        # Orders.
        'a server without tables is empty': every(lambda s, r: Implies(Not(a.made(s)), And(
            Not(a.closed(s)), Not(a.taken(s, r)), Not(a.took_over(s))))),
        'a writable server has all orders, and one that was closed': every(lambda s, q: Implies(
            And(Or(a.live(s), And(a.made(s), a.closed(s))), a.made(q), registry(s) == registry(q)),
            a.orders(q) <= a.orders(s))),
        'orders are carried out one after another': every(lambda s, q, r: Implies(
            And(a.made(s), a.made(q), registry(s) == registry(q), a.orders(q) <= a.orders(s)), And(
                Implies(a.closed(q), a.closed(s)), Implies(a.taken(q, r), a.taken(s, r))))),
        'a registry that was taken over has ended': every(lambda s, r, q: Implies(
            And(a.taken(s, r), registry(q) == r),
            And(registry(s) != r, Or(Not(a.live(q)), a.closed(q))))),
        'with a registry those are taken over that it took over': every(lambda s, q, r: Implies(
            And(a.taken(s, registry(q)), a.taken(q, r)), a.taken(s, r))),
        'a lease succeeds what its server has taken over': every(lambda l, r: Implies(
            And(a.granted(l), succeeds(l, r)), a.taken(granter(l), r))),
        'what was forgotten is over for all': every(lambda s, l: Implies(
            And(a.taken(s, home(l)), a.granted(l), Not(a.took_over(s))),
            is_over_for_all(a, s, l))),

        # The source guard.
        'a cluster records what it uses, or has forgotten it': every(lambda l: Implies(
            a.opened(l), Or(is_recorded(a, l), is_forgotten(a, l)))),
        'a record is made by a lease, or by a dump before the first one': every(lambda j: Implies(
            a.uses_any(j), Or(
                And(a.opened(a.latest(j)), cluster(owner(a.latest(j))) == j,
                    home(a.latest(j)) == a.uses(j)),
                every(lambda l: Implies(And(a.opened(l), cluster(owner(l)) == j), Or(
                    home(l) == a.uses(j), is_forgotten(a, l))))))),
        'a call says what its cluster uses': every(lambda n: Implies(
            And(Not(a.dead(n)), a.out(n), Not(hostile(n))),
            And(says_uses(n, a.calls(n)) == a.uses_any(cluster(n)),
                Implies(a.uses_any(cluster(n)), said_uses(n, a.calls(n)) == a.uses(cluster(n))),
                Implies(asks(n, a.calls(n)),
                        a.made_at(cluster(n)) <= said_made(n, a.calls(n)))))),
        'a lease that may be opened is of a successor': every(lambda m: Implies(
            And(may_be_opened(a, m), a.uses_any(cluster(owner(m)))),
            Or(home(m) == a.uses(cluster(owner(m))), succeeds(m, a.uses(cluster(owner(m))))))),
        'or it starts after what its cluster has forgotten': every(lambda l, m: Implies(
            And(may_be_opened(a, m), a.opened(l), cluster(owner(l)) == cluster(owner(m))),
            Or(home(l) == home(m), succeeds(m, home(l)),
               And(is_forgotten(a, l), a.may(l) <= starts(m))))),
    }


def first_state(a):
    """CREATE EXTENSION snowflake_registry was carried out on one server; nobody has asked yet."""
    return And(
        every(lambda s, q: Implies(And(a.ran(s), a.ran(q)), s == q)),
        every(lambda s: And(
            a.live(s) == a.ran(s), a.made(s) == a.ran(s), Not(a.closed(s)), Not(a.took_over(s)),
            Not(a.left(s)), Implies(a.ran(s), And(
                a.generation(s) == 1, place(s) == s, a.orders(s) == 0,
                0 <= a.limit(s), a.limit(s) == a.window(s),
                a.promoted_at(s) <= a.now())))),
        every(lambda s, e: Implies(a.ran(s), Not(history(s, e)))),
        every(lambda s, e: Not(a.counted(s, e))),
        every(lambda s, k: Not(a.is_open(s, k))),
        every(lambda s, r: Not(a.taken(s, r))),
        every(lambda n: And(a.calls(n) == 0, Not(a.out(n)), Not(a.dead(n)))),
        every(lambda n, c: Not(a.done(n, c))),
        every(lambda l: And(Not(a.granted(l)), Not(a.opened(l)), Not(a.sealed(l)), Not(a.bit(l)))),
        every(lambda l, t: Not(a.issued(l, t))),
        every(lambda l, c, u: Not(a.result(l, c, u))),
        every(lambda j: Not(a.uses_any(j))))


def duplicate(a, l, m, t):
    """Two leases of one deployment have issued the same (tick, number)."""
    return And(
        l != m, number(l) == number(m), a.issued(l, t), a.issued(m, t),
        Or(home(l) == home(m), succeeds(l, home(m)), succeeds(m, home(l)),
           cluster(owner(l)) == cluster(owner(m))))


# The model is about these facts of the world, too.  A new timeline is none that its server's history
# has; but servers that were promoted from one primary at one place have the same entry.
def world():
    return And(
        least_ahead >= 0, difference > 0, every(lambda t: begins(t) < ends(t)))


# ---------------------------------------------------------------------------------------------
# The assumptions, A1 to A5 of the contract, where they are about the lease protocol.
# ---------------------------------------------------------------------------------------------
def reads(a, CLOCK):
    """A3: clocks differ by less than 10 s.  The time of the model is the least that a clock says."""
    return And(a.now() <= CLOCK, CLOCK < a.now() + difference)


def only_server(a, S):
    """A1: an order is given on the only server of a registry that is or can be writable."""
    return every(lambda q: Implies(And(registry(q) == registry(S), a.live(q)), q == S))


def others_were_stopped(a, S, but, window):
    """A3: each server of the registry of S, or of one that it took over, that was ever writable has
    been stopped, or a node of another one, or its registry closed, for the longest window; but for
    one."""
    return every(lambda q: Implies(
        And(a.ran(q), is_related(a, S, registry(q)), q != S, Not(but(q))),
        And(Or(Not(a.live(q)), a.left(q), a.closed(q)), a.quiet(q) + window <= a.now())))


def fixed_number_is_alone(a, S, N, L, C):
    """A3: a fixed number has one running server, whose clock is not behind its own last ids; a
    former primary runs only as a standby; fixed and automatic numbers are not mixed.  Or A1: with
    another's registry a synchronous standby and an old primary that is stopped."""
    return every(lambda l: Implies(
        And(a.granted(l), home(l) == registry(S), granter(l) != S, number(l) == number(L),
            Or(fixed(l), fixed(L)), Not(hostile(owner(l))), Not(hostile(N))),
        Or(And(fixed(l), fixed(L), owner(l) == N),
           And(fixed(l), fixed(L), a.dead(owner(l)), a.may(l) <= said_clock(N, C),
               a.generation(S) > 1),
           And(Not(a.live(granter(l))), in_tables(a, S, l)))))


def fixed_number_was_alone(a, S, N, L, C):
    """The same for a number that a registry granted which was taken over."""
    return every(lambda l: Implies(
        And(a.granted(l), a.taken(S, home(l)), number(l) == number(L), Or(fixed(l), fixed(L)),
            Not(hostile(owner(l))), Not(hostile(N))),
        Or(is_over_for_all(a, S, l), And(fixed(l), fixed(L), Or(
            owner(l) == N, And(a.dead(owner(l)), a.may(l) <= said_clock(N, C)))))))


# ---------------------------------------------------------------------------------------------
# What a registry does.  L, X are leases, S, R servers, N a node, C the number of a call, U an
# end, CLOCK the clock of whoever acts.
# ---------------------------------------------------------------------------------------------
def pass_time(a, TIME=Int):
    """time passes: it is {TIME}"""
    return a.now() <= TIME, after(a, now=lambda: TIME)


def close_leases(a, S, which, end):
    """The tables after open leases are closed: ended_until rises to the end, and never falls."""
    def ended(k):
        never_falls = kept('closing-never-lowers-ended-until')
        return greatest(a.ended(S, k), end(k)) if never_falls else end(k)
    return after(
        a, ended=lambda s, k: If(And(s == S, a.is_open(S, k), which(k)), ended(k), a.ended(s, k)),
        is_open=lambda s, k: And(a.is_open(s, k), Not(And(s == S, which(k)))))


def begin_call(a, S, N, C):
    """The head of each call, of acquire_lease(), renew_lease() and release_lease(): what it
    demands, and the tables after it.  It closes the lease whose end the call says, and the
    start's other ones.  The number of the call is kept with a lease of the start that is open."""
    mine = lambda k: And(a.is_open(S, k), owner(a.lease(S, k)) == N)
    is_named = lambda k: And(names(N, C), a.lease(S, k) == named(N, C))
    never_opened = lambda k: And(names(N, C), rule(
        'close-at-start-what-was-granted-later', granted_by(named(N, C)) < granted_by(a.lease(S, k))))
    start = lambda k: starts(a.lease(S, k))
    least = lambda x, y: If(x < y, x, y)
    end = lambda k: If(
        And(is_named(k), says_end(N, C)), least(a.until(S, k), greatest(start(k), said_end(N, C))),
        If(never_opened(k), start(k), a.until(S, k)))
    closes = lambda k: And(mine(k), If(
        is_named(k), says_end(N, C), kept('a-call-closes-what-it-does-not-name')))
    demands = And(
        a.live(S), sent_to(N, C) == place(S), 0 < C, C <= a.calls(N), Not(a.done(N, C)),
        rule('count-at-the-head-of-every-call', has_counted(a, S)),
        rule('refuse-late-calls', every(lambda k: Implies(mine(k), a.last_call(S, k) < C))))
    b = close_leases(a, S, closes, end)
    return demands, after(
        b, done=lambda n, c: Or(a.done(n, c), And(n == N, c == C)),
        last_call=lambda s, k: If(And(s == S, mine(k), a.last_call(S, k) < C), C, a.last_call(s, k)))


def is_limited(a, S, U, CLOCK):
    """The end is within the limit of the registry's clock: a later one that is asked for is cut."""
    return And(reads(a, CLOCK), rule('ends-are-limited', U <= CLOCK + a.limit(S)))


def acquire_lease(a, S=Server, N=Node, C=Int, L=Lease, U=Int, CLOCK=Int):
    """server {S} grants node {N} (call {C}) lease {L}: number {number(L)}, {starts(L)} to {U}"""
    # snowflake.acquire_lease() and acquire_own_lease()
    demands, b = begin_call(a, S, N, C)
    K = number(L)
    return And(
        demands, asks(N, C), Not(a.granted(L)), granter(L) == S, owner(L) == N, granted_by(L) == C,
        asks_for(N, C, K), fixed(L) == asks_fixed(N, C),
        leased_in(L) == a.generation(S), starts(L) <= U,
        every(lambda l: Implies(a.granted(l), order(l) < order(L))),
        every(lambda r: succeeds(L, r) == a.taken(S, r)),
        rule('a-closed-registry-grants-nothing', Not(a.closed(S))),
        rule('parity', Implies(Not(fixed(L)), bit0(K) == even(a.generation(S)))),
        rule('start-after-ended-until', b.ended(S, K) <= starts(L)),
        rule('start-after-the-open-lease', Implies(b.is_open(S, K), b.until(S, K) <= starts(L))),
        rule('start-after-the-creation', a.created(S) + (
            said_ahead(N, C) if kept('max-ahead-past-the-creation') else 0) <= starts(L)),
        rule('start-after-the-count', a.counted_at(S) <= starts(L)),
        rule('start-after-the-floor', a.floor(S) <= starts(L)),
        # own tables know it, another registry is told
        rule('start-after-the-creation-of-own-tables', said_ahead(N, C) + If(
            tables_of(S) == cluster(N), a.made_at(cluster(N)), said_made(N, C)) <= starts(L)),
        rule('start-after-the-ids-of-the-start', If(
            And(names(N, C), is_akin(named(N, C), L)), said_floor(N, C), said_known(N, C))
            <= starts(L)),
        rule('a-fixed-number-starts-at-the-clock', Implies(
            And(fixed(L), Or(a.generation(S) > 1, a.took_over(S))),
            said_clock(N, C) <= starts(L))),
        rule('source-guard', Implies(says_uses(N, C), Or(said_uses(N, C) == registry(S),
                                                        a.taken(S, said_uses(N, C))))),
        rule('a-registry-is-a-root', is_root(a, S)),
        is_limited(a, S, U, CLOCK),
        rule('A3-a-fixed-number-is-alone', And(
            fixed_number_is_alone(a, S, N, L, C), fixed_number_was_alone(a, S, N, L, C))),
    ), after(
        close_leases(b, S, lambda k: k == K, lambda k: b.until(S, k)),
        granted=lambda l: Or(a.granted(l), l == L),
        is_open=lambda s, k: Or(b.is_open(s, k), And(s == S, k == K)),
        lease=lambda s, k: If(And(s == S, k == K), L, a.lease(s, k)),
        until=lambda s, k: If(And(s == S, k == K), U, a.until(s, k)),
        last_call=lambda s, k: If(And(s == S, k == K), C, b.last_call(s, k)),
        recorded=lambda s, k: If(And(s == S, k == K), greatest(U, a.recorded(s, k)), a.recorded(s, k)),
        result=lambda l, c, u: Or(a.result(l, c, u), And(l == L, c == C, u == U)),
        may=lambda l: If(l == L, If(And(counts(a, N, C), Not(hostile(N))), U, starts(L)), a.may(l)))


def is_root(a, S):
    """check_root(): the registry's own cluster uses none, this one, or one that was taken over."""
    J = tables_of(S)
    return Implies(a.uses_any(J), Or(a.uses(J) == registry(S), a.taken(S, a.uses(J))))


def renew_lease(a, S=Server, N=Node, C=Int, X=Lease, U=Int, CLOCK=Int):
    """server {S} renews lease {X} of node {N} (call {C}) to {U}"""
    # snowflake.renew_lease()
    demands, b = begin_call(a, S, N, C)
    K = number(X)
    is_open = And(a.is_open(S, K), a.lease(S, K) == X)
    return And(
        demands, Not(asks(N, C)), names(N, C), X == named(N, C), Not(says_end(N, C)),
        registry(granter(X)) == registry(S), starts(X) <= U,
        rule('a-closed-registry-renews-nothing', Not(a.closed(S))),
        rule('renew-the-open-lease-only', is_open),
        rule('renew-within-the-generation', leased_in(X) == a.generation(S)),
        rule('a-renewal-never-lowers', Implies(is_open, a.until(S, K) <= U)),
        rule('renew-what-starts-after-ended-until', a.ended(S, K) <= starts(X)),
        is_limited(a, S, U, CLOCK),
    ), after(
        b,
        until=lambda s, k: If(And(s == S, k == K, is_open), U, b.until(s, k)),
        recorded=lambda s, k: If(And(s == S, k == K), greatest(U, a.recorded(s, k)), a.recorded(s, k)),
        result=lambda l, c, u: Or(a.result(l, c, u), And(l == X, c == C, u == U)),
        may=lambda l: If(And(l == X, counts(a, N, C), Not(hostile(N)), Not(a.sealed(X)), U > a.may(X)),
                         U, a.may(l)))


def release_lease(a, S=Server, N=Node, C=Int):
    """server {S} carries out call {C} of node {N} and closes what the call has no use for"""
    # snowflake.release_lease(); also any other call whose answer is no
    demands, b = begin_call(a, S, N, C)
    return And(demands, rule('a-closed-registry-changes-nothing', Not(a.closed(S)))), b


def note_lost_end(a, S=Server, N=Node, K=Number, U=Int, CLOCK=Int):
    """server {S} learns from node {N} of a lease of number {K} that ends at {U}"""
    # guard (b), in each call: the end is after recorded_until.  What the node says may be wrong: the
    # end is cut, and another node's open lease goes on.
    mine = And(a.is_open(S, K), owner(a.lease(S, K)) == N)
    b = close_leases(a, S, lambda k: And(k == K, mine), lambda k: a.until(S, k))
    return And(
        a.live(S), Not(a.closed(S)), has_counted(a, S), a.recorded(S, K) < U,
        Or(mine, Not(a.is_open(S, K))), reads(a, CLOCK), U <= CLOCK + a.limit(S),
    ), after(
        b, ended=lambda s, k: If(And(s == S, k == K), greatest(U, b.ended(s, k)), b.ended(s, k)))


def merge_rows(a, S=Server, ENDS={'k': Int}):
    """rows of a dump are restored into the tables of server {S}"""
    # the trigger of INSERT on node_number: ended_until rises, and the rest is dropped
    return And(a.live(S), every(lambda k: a.ended(S, k) <= ENDS(k))), after(
        a, ended=lambda s, k: If(s == S, ENDS(k), a.ended(s, k)))


def merge_record(a, J=Cluster, R=Registry):
    """a dump is restored into cluster {J}, and says that it uses the registry {R}"""
    # the trigger of INSERT on cluster: a record that is there is kept.  While a call is out,
    # record_uses() answers no to what it brings.
    return And(
        rule('a-restore-keeps-the-record', Not(a.uses_any(J))),
        every(lambda n: Implies(cluster(n) == J, Or(a.dead(n), Not(a.out(n))))),
    ), after(a, uses_any=lambda j: Or(a.uses_any(j), j == J),
             uses=lambda j: If(j == J, R, a.uses(j)))


def at(a, S, **values):
    """New values in the row of registry at S."""
    return {name: (lambda f, value: lambda s: If(s == S, value, f(s)))(getattr(a, name), value)
            for name, value in values.items()}


# ---------------------------------------------------------------------------------------------
# What happens to a registry's servers.
# ---------------------------------------------------------------------------------------------
def copied(a, S, R):
    """All tables of R at S, as they are now."""
    return {name: (lambda f: lambda s, *x: If(s == S, f(R, *x), f(s, *x)))(getattr(a, name))
            for name in TABLES}


def replicate(a, S=Server, R=Server):
    """standby {S} receives the tables of server {R} as they are now"""
    # streaming replication, or a backup; any earlier state, if it is done earlier
    return And(Not(a.ran(S)), a.ran(R), R == primary(S), registry(S) == registry(R)), after(
        a, **copied(a, S, R))


def stop(a, R=Server):
    """server {R} is stopped for good"""
    return a.live(R), after(
        a, live=lambda s: And(a.live(s), s != R),
        quiet=lambda s: If(And(s == R, Not(a.closed(R))), a.now(), a.quiet(s)))


def is_next(a, S):
    """S has not run yet, and all that ran did before it."""
    return And(Not(a.ran(S)), every(lambda s: Implies(a.ran(s), turn(s) < turn(S))))


def has_own_place(a, S):
    return And(place(S) == S, every(lambda s: Implies(a.ran(s), place(s) != S)))


def promote(a, S=Server):
    """standby {S} of {primary(S)} is promoted or restored"""
    # The primary is the server that last wrote WAL that S has replayed.  The history of S has that
    # server's entries, whatever others history files brought (recovery_target_timeline), and a new
    # one; but another server may have one of the same name, also one that was promoted before.
    P = primary(S)
    return And(
        is_next(a, S), has_own_place(a, S), a.made(S), a.ran(P),
        history(S, entry(S)), Not(history(P, entry(S))), Not(a.counted(S, entry(S))),
        every(lambda e: Implies(history(P, e), history(S, e))),
        rule('A1-orders-reach-every-standby', has_all_orders(a, S)),
        rule('what-is-lost-never-runs-again', every(lambda q: Implies(
            a.taken(q, registry(S)), a.closed(S)))),
        rule('A3-other-servers-were-stopped', others_were_stopped(
            a, S, lambda q: And(q == P, rule('A3-if-the-promotion-is-a-plain-one', is_plain(a, S))),
            longest_window(a, S))),
    ), after(
        a, ran=lambda s: Or(a.ran(s), s == S), live=lambda s: Or(a.live(s), s == S),
        promoted_at=lambda s: If(s == S, a.now(), a.promoted_at(s)))


def count_generation(a, S=Server, CLOCK=Int, NEW=Int):
    """server {S} counts {NEW} entries of its timeline history at {CLOCK}"""
    # the head of every call; the own lease worker also has it counted when recovery ends
    plain = is_plain(a, S)
    floor = If(plain, If(CLOCK <= a.counted_at(S) + longest_window(a, S),
                         a.counted_at(S) + longest_window(a, S), a.floor(S)),
               CLOCK + longest_window(a, S))
    return And(
        a.live(S), Not(has_counted(a, S)), Not(a.closed(S)), 1 <= NEW, (NEW == 1) == plain,
        rule('A3-clocks-are-right', reads(a, CLOCK)),
    ), after(
        a, counted=lambda s, e: Or(a.counted(s, e), And(s == S, history(S, e))),
        generation=lambda s: If(s == S, a.generation(S) + (
            NEW if kept('count-every-entry') else 1), a.generation(s)),
        counted_at=lambda s: If(And(s == S, kept('store-the-time-of-the-count')),
                                greatest(CLOCK, a.counted_at(S)), a.counted_at(s)),
        floor=lambda s: If(And(s == S, kept('a-count-stores-a-floor')),
                           greatest(floor, a.floor(S)), a.floor(s)))


def upgrade(a, P=Server, S=Server, CLOCK=Int):
    """server {P} goes through pg_upgrade; it is {S} from then on, first called at {CLOCK}"""
    # The timeline history is empty then, and the system identifier is another one.  All leases are
    # closed.
    b = after(a, **copied(a, S, P))
    return And(
        is_next(a, S), has_own_place(a, S), a.live(P), Not(a.closed(P)), registry(S) == registry(P),
        every(lambda e: Not(history(S, e))),
        rule('A3-clocks-are-right', reads(a, CLOCK)),
        # A5: it has carried out a call; or its old primary is gone, and the clock is not behind
        # any end that that one granted
        rule('A5-a-call-before-pg-upgrade', Or(has_counted(a, P), And(
            every(lambda q: Implies(And(registry(q) == registry(P), a.live(q)), q == P)),
            every(lambda l: Implies(And(a.granted(l), is_related(a, P, home(l))),
                                    Or(granter(l) == P, a.may(l) <= CLOCK)))))),
    ), after(
        b, ran=lambda s: Or(a.ran(s), s == S), live=lambda s: Or(s == S, And(a.live(s), s != P)),
        quiet=lambda s: If(s == P, a.now(), a.quiet(s)),
        promoted_at=lambda s: If(s == S, a.now(), a.promoted_at(s)),
        counted_at=lambda s: If(And(s == S, kept('store-the-time-of-pg-upgrade')),
                                greatest(a.counted_at(P), CLOCK), b.counted_at(s)),
        ended=lambda s, k: If(And(s == S, a.is_open(P, k)), greatest(a.ended(P, k), a.until(P, k)),
                              b.ended(s, k)),
        is_open=lambda s, k: And(b.is_open(s, k), Not(And(s == S, kept('pg-upgrade-closes-leases')))))


def leases_are_over(a, S=Server, CLOCK=Int):
    """the owner of the managed registry at {S} says at {CLOCK} that leases of before are over"""
    # It cannot read the timeline history, and refuses all calls on another timeline until the owner
    # has said it; it counts one, however many entries are new.  With other tables than before it is
    # another incarnation: see create().
    return And(a.live(S), Not(has_counted(a, S)), Not(a.closed(S)), reads(a, CLOCK)), after(
        a, counted=lambda s, e: Or(a.counted(s, e), And(s == S, history(S, e))),
        **at(a, S, generation=a.generation(S) + 1, counted_at=greatest(CLOCK, a.counted_at(S))))


def note_copy(a, S=Server):
    """the data directory of server {S} has another mark than the one on record"""
    # guard (c): a copy that was started as it is, or a directory that was moved.  No server can tell
    # them apart, so it warns and has an alert, but the parity stays.
    return And(a.live(S), has_counted(a, S), Not(a.closed(S))), after(
        a, generation=lambda s: If(And(s == S, Not(kept('another-mark-keeps-the-parity'))),
                                   a.generation(S) + 1, a.generation(s)))


def become_node(a, S=Server):
    """server {S} becomes a node of another server of its registry"""
    # A standby was promoted, and its setting names its primary's cluster.  Its own tables grant
    # nothing while `cluster.uses` is another; so A1 and A3 are not about it.
    grants_nothing = kept('a-node-of-its-primary-grants-nothing')
    return And(a.live(S), Not(a.closed(S))), after(
        a, live=lambda s: And(a.live(s), Not(And(s == S, grants_nothing))),
        left=lambda s: Or(a.left(s), s == S), quiet=lambda s: If(s == S, a.now(), a.quiet(s)))


# ---------------------------------------------------------------------------------------------
# What owners do: orders.
# ---------------------------------------------------------------------------------------------
def order_on(a, S):
    """What each order demands: A1, and that it begins as each call does."""
    return And(a.live(S), Not(a.closed(S)), has_counted(a, S),
               rule('A1-orders-on-the-only-server', only_server(a, S)))


def ordered(a, S):
    return dict(orders=lambda s: If(s == S, a.orders(S) + 1, a.orders(s)))


def change_layout(a, S=Server):
    """change_layout() on server {S}"""
    # It closes all leases as they stand.  What it does to ids is in layout.py.
    return order_on(a, S), after(
        close_leases(a, S, lambda k: a.is_open(S, k), lambda k: a.until(S, k)), **ordered(a, S))


def limit_leases(a, S=Server, LIMIT=Int, CLOCK=Int):
    """limit_leases({LIMIT}) on server {S} at {CLOCK}"""
    # the greater one counts for the longest window
    lowered = And(LIMIT < a.window(S), kept('a-limit-that-was-lowered-counts'))
    return And(order_on(a, S), 0 <= LIMIT, reads(a, CLOCK)), after(
        a, limit=lambda s: If(s == S, LIMIT, a.limit(s)),
        window=lambda s: If(And(s == S, Not(lowered)), LIMIT, a.window(s)),
        lowered=lambda s: If(s == S, CLOCK, a.lowered(s)), **ordered(a, S))


def limit_has_passed(a, S=Server, CLOCK=Int):
    """at {CLOCK}, the limit that was lowered counts no more on server {S}"""
    # whatever asks for the longest window
    twice = difference if kept('clocks-differ-when-a-limit-was-lowered') else 0
    return And(
        a.made(S), a.limit(S) < a.window(S), reads(a, CLOCK),
        a.lowered(S) + longest_window(a, S) + twice <= CLOCK,
    ), after(a, window=lambda s: If(s == S, a.limit(s), a.window(s)))


def is_new(a, R):
    """An incarnation is a random uuid."""
    return every(lambda q: And(Not(a.taken(q, R)), Implies(registry(q) == R, And(
        Not(a.ran(q)), Not(a.made(q))))))


def create(a, S=Server, LOST={'r': Bool}, ENDS={'k': Int}, CLOCK=Int, EVER=Int):
    """CREATE EXTENSION at {CLOCK} on cluster {tables_of(S)}: server {S}"""
    # On a new cluster, or after DROP EXTENSION snowflake_registry; or a template copy takes the
    # place of postgres; or tables of a managed registry are restored or copied, which are another
    # incarnation then.  The generation may be any, and so may the ends that a dump brings; no lease
    # is open.  counted_at may be any, as none is on record.  What the old tables had is gone.  LOST
    # are the registries that they were and had taken over (none, on a new cluster): nodes of these
    # are accepted, as after take_over_lost().
    J = tables_of(S)
    return And(
        is_new(a, registry(S)), is_next(a, S), has_own_place(a, S),
        1 <= a.generation(S), Not(LOST(registry(S))), reads(a, CLOCK),
        0 <= a.limit(S), a.limit(S) == a.window(S),
        every(lambda q, r: Implies(And(LOST(registry(q)), a.taken(q, r)), LOST(r))),
        # A4: nothing of the old registry runs, the server itself has no lease, and no id is later
        # than this + the least max_ahead
        rule('A4-no-id-is-later', every(lambda l: Implies(
            Or(And(a.granted(l), LOST(home(l))), And(a.opened(l), cluster(owner(l)) == J)),
            Or(a.may(l) <= CLOCK + least_ahead, And(Not(a.opened(l)), issues_nothing(a, l)))))),
        rule('A4-the-server-has-no-lease', And(
            every(lambda l: Implies(And(a.opened(l), cluster(owner(l)) == J), is_over(a, l))),
            every(lambda n: Implies(cluster(n) == J, Or(a.dead(n), Not(a.out(n))))))),
    ), after(
        a,
        live=lambda s: Or(s == S, And(a.live(s), Not(LOST(registry(s))))),
        quiet=lambda s: If(And(a.live(s), Not(a.closed(s)), LOST(registry(s))), a.now(), a.quiet(s)),
        ran=lambda s: Or(a.ran(s), s == S), made=lambda s: Or(a.made(s), s == S),
        counted=lambda s, e: If(s == S, history(S, e), a.counted(s, e)),
        counted_at=lambda s: If(s == S, EVER, a.counted_at(s)),
        promoted_at=lambda s: If(s == S, a.now(), a.promoted_at(s)),
        is_open=lambda s, k: And(a.is_open(s, k), s != S), closed=lambda s: And(a.closed(s), s != S),
        ended=lambda s, k: If(s == S, ENDS(k), a.ended(s, k)),
        taken=lambda s, r: If(s == S, LOST(r), a.taken(s, r)),
        took_over=lambda s: And(a.took_over(s), s != S),
        orders=lambda s: If(s == S, 0, a.orders(s)),
        created=lambda s: If(And(s == S, kept('created-at')), CLOCK, a.created(s)),
        uses_any=lambda j: And(a.uses_any(j), j != J),
        made_at=lambda j: If(j == J, CLOCK, a.made_at(j)))


def close_registry(a, R=Server):
    """close_registry() on server {R}"""
    return order_on(a, R), after(a, closed=lambda s: Or(a.closed(s), s == R),
             quiet=lambda s: If(s == R, a.now(), a.quiet(s)), **ordered(a, R))


def ends_of(a, R, ENDS):
    """What closed_registry() says of R: the greatest end of each number."""
    return And(
        rule('hand-on-the-ends-of-open-leases', every(lambda k: Implies(
            a.is_open(R, k), a.until(R, k) <= ENDS(k)))),
        rule('hand-on-ended-until', every(lambda k: a.ended(R, k) <= ENDS(k))))


def handed_on(a, S, R):
    """The greater of each that S and R have: what S has after it has taken over R."""
    both = lambda f, name: greatest(f(S), f(R) if kept(name) else f(S))
    return dict(
        created=both(a.created, 'hand-on-the-creation'), floor=both(a.floor, 'hand-on-the-floor'),
        counted_at=both(a.counted_at, 'hand-on-the-time-of-the-count'),
        limit=both(a.limit, 'hand-on-the-limit'), window=both(a.window, 'hand-on-the-limit'),
        lowered=both(a.lowered, 'hand-on-the-limit'))


def take_over(a, S=Server, R=Server, ENDS={'k': Int}, CLOCK=Int):
    """take_over() on server {S} at {CLOCK}, of the registry of server {R}"""
    # With the result of closed_registry() on R, which may be stopped meanwhile.  What a failover of R
    # has lost is of the other parity; so S takes the parity of R, and if that is not its own it counts
    # as one promotion.
    keeps_parity = even(a.generation(S)) == even(a.generation(R))
    counts_one = And(Not(keeps_parity), kept('take-over-the-parity'))
    has = handed_on(a, S, R)
    has.update(counted_at=If(counts_one, greatest(CLOCK, has['counted_at']), has['counted_at']),
               generation=If(counts_one, a.generation(S) + 1, a.generation(S)))
    return And(
        order_on(a, S), registry(S) != registry(R), reads(a, CLOCK),
        a.ran(R), rule('close-before-taking-over', a.closed(R)),
        every(lambda k: a.ended(S, k) <= ENDS(k)), ends_of(a, R, ENDS),
        rule('A3-taking-over-counts', Or(keeps_parity, others_were_stopped(
            a, S, lambda q: q == S, longest_window(a, S)))),
    ), after(
        a,
        taken=lambda s, r: Or(a.taken(s, r), And(s == S, Or(r == registry(R), a.taken(R, r)))),
        took_over=lambda s: Or(a.took_over(s), s == S),
        ended=lambda s, k: If(s == S, ENDS(k), a.ended(s, k)),
        **at(a, S, **has), **ordered(a, S))


def is_lost(a, S, LOST):
    """The registry never runs again, nor any that it had taken over; its limit was not greater."""
    return And(
        every(lambda q: Implies(And(LOST(registry(q)), q != S), Not(a.live(q)))),
        every(lambda q, r: Implies(And(LOST(registry(q)), a.taken(q, r)), Or(LOST(r),
                                                                           r == registry(S)))),
        rule('what-is-lost-had-no-greater-limit', every(lambda l: Implies(
            And(a.granted(l), LOST(home(l))), Or(a.may(l) <= a.now(), a.may(l) <= quiet_since(
                a, granter(l)) + a.limit(S) + difference)))))


def lost_floor(a, S, CLOCK):
    return greatest(a.floor(S), CLOCK + longest_window(a, S)) if kept(
        'a-lost-registry-may-issue-for-the-longest-window') else a.floor(S)


def take_over_lost(a, S=Server, LOST={'r': Bool}, CLOCK=Int):
    """take_over_lost() on server {S} at {CLOCK}"""
    return And(
        order_on(a, S), reads(a, CLOCK), is_lost(a, S, LOST), Not(LOST(registry(S))),
        every(lambda q: Implies(LOST(registry(q)), Not(a.taken(q, registry(S))))),
    ), after(
        a, taken=lambda s, r: Or(a.taken(s, r), And(s == S, LOST(r))),
        took_over=lambda s: Or(a.took_over(s), s == S),
        **at(a, S, floor=lost_floor(a, S, CLOCK)), **ordered(a, S))


def opened_again(a, S, X, over, ENDS, **has):
    """The state after own tables of S are opened again, as X, with a new incarnation: no lease is
    open."""
    b = after(a, **copied(a, X, S))
    return after(
        b,
        live=lambda s: Or(s == X, And(a.live(s), s != S)), left=lambda s: And(a.left(s), s != S),
        ran=lambda s: Or(a.ran(s), s == X),
        quiet=lambda s: If(And(s == S, Not(a.closed(S))), a.now(), a.quiet(s)),
        closed=lambda s: And(a.closed(s), s != X),
        is_open=lambda s, k: And(b.is_open(s, k), s != X),
        counted=lambda s, e: Or(b.counted(s, e), And(s == X, history(X, e))),
        promoted_at=lambda s: If(s == X, a.now(), a.promoted_at(s)),
        took_over=lambda s: Or(a.took_over(s), s == X),
        taken=lambda s, r: If(s == X, Or(a.taken(S, r), r == registry(S), over(r)), a.taken(s, r)),
        ended=lambda s, k: If(s == X, ENDS(k), a.ended(s, k)),
        orders=lambda s: If(s == X, 0, a.orders(s)), **at(b, X, **has))


def has_new_incarnation(a, S, X):
    return And(is_next(a, X), place(X) == place(S), tables_of(X) == tables_of(S),
               is_new(a, registry(X)), registry(X) != registry(S))


def take_over_again(a, S=Server, R=Server, X=Server, ENDS={'k': Int}, NEW=Int):
    """take_over() on server {S}, which was closed, of the registry of server {R}"""
    # own tables, which R has taken over, open with a new incarnation, which is X here; they have the
    # parity of R
    has = handed_on(a, S, R)
    return And(
        a.live(S), a.closed(S), only_server(a, S), registry(S) != registry(R),
        a.ran(R), a.closed(R), a.taken(R, registry(S)),
        has_new_incarnation(a, S, X), registry(X) != registry(R),
        a.generation(S) <= NEW, rule('take-over-the-parity', even(NEW) == even(a.generation(R))),
        every(lambda k: a.ended(S, k) <= ENDS(k)), every(lambda k: Implies(
            a.is_open(S, k), a.until(S, k) <= ENDS(k))), ends_of(a, R, ENDS),
    ), opened_again(a, S, X, lambda r: Or(r == registry(R), a.taken(R, r)), ENDS,
                    generation=NEW, **has)


def take_over_lost_again(a, S=Server, LOST={'r': Bool}, X=Server, ENDS={'k': Int}, CLOCK=Int):
    """take_over_lost() on server {S}, whose tables get a new incarnation, at {CLOCK}"""
    # own tables that were closed, and whose successor is lost; or that are a copy of the lost
    # registry's
    return And(
        Or(a.left(S), a.live(S)), Or(a.closed(S), And(LOST(registry(S)), has_counted(a, S))),
        only_server(a, S),
        reads(a, CLOCK), is_lost(a, S, LOST), Not(LOST(registry(X))), has_new_incarnation(a, S, X),
        every(lambda k: a.ended(S, k) <= ENDS(k)),
        every(lambda k: Implies(a.is_open(S, k), a.until(S, k) <= ENDS(k))),
    ), opened_again(a, S, X, LOST, ENDS, floor=lost_floor(a, S, CLOCK))


def ids_end_before(a, S=Server, TIME=Int):
    """ids_end_before({TIME}) on server {S}"""
    # the owner says that no id that is not in node_number ends later
    J = tables_of(S)
    earlier = lambda time: If(time > TIME, TIME, time)
    return And(
        order_on(a, S),
        rule('ids-end-when-the-owner-says', every(lambda l: Implies(
            Or(And(a.granted(l), Or(a.taken(S, home(l)),
                                    And(home(l) == registry(S), granter(l) != S))),
               And(a.opened(l), cluster(owner(l)) == J, Not(And(
                   home(l) == registry(S), a.uses_any(J), a.uses(J) == registry(S))))),
            a.may(l) <= TIME))),
    ), after(
        a, made_at=lambda j: If(j == J, earlier(a.made_at(J)), a.made_at(j)),
        **at(a, S, created=earlier(a.created(S)), floor=earlier(a.floor(S)),
             counted_at=earlier(a.counted_at(S))), **ordered(a, S))


def ids_of_role_end_before(a, S=Server, X=Lease, TIME=Int):
    """ids_end_before({TIME}, role) on server {S}, for lease {X}"""
    # The owner says it of the ids of a lease of the role.  Only open leases are closed earlier.  What
    # is closed is in ended_until, with all else that was merged into it: it would have to be lowered.
    K = number(X)
    is_open = And(a.is_open(S, K), a.lease(S, K) == X)
    end = greatest(TIME, starts(X))
    b = close_leases(a, S, lambda k: And(k == K, is_open),
                     lambda k: If(a.until(S, k) < TIME, a.until(S, k), end))
    return And(
        order_on(a, S), a.granted(X),
        rule('ids-of-the-role-end-when-the-owner-says', a.may(X) <= TIME),
        rule('a-role-loses-open-leases-only', is_open),
        Implies(Not(is_open), And(      # its number's last lease; ended_until is the end that it had
            granter(X) == S, a.lease(S, K) == X, a.ended(S, K) == a.until(S, K),
            every(lambda l: Implies(And(a.granted(l), granter(l) == S, number(l) == K),
                                    order(l) <= order(X))))),
    ), after(b, ended=lambda s, k: If(And(s == S, k == K, Not(is_open)), end, b.ended(s, k)),
             **ordered(a, S))


# ---------------------------------------------------------------------------------------------
# What a node does.
# ---------------------------------------------------------------------------------------------
def without_result(a, N):
    """Proof only: what was granted to N and is not opened yet never will be."""
    lost = lambda l: And(owner(l) == N, Not(a.opened(l)), starts(l) < a.may(l))
    return lambda l: If(lost(l), starts(l), a.may(l))


def named_newest(a, N, C):
    """A call names the lease that the node has had last, and its end only if that is sealed."""
    X = named(N, C)
    return And(
        has(a, N, X),
        rule('name-the-newest-lease', every(lambda l: Implies(
            has(a, N, l), granted_by(l) <= granted_by(X)))),
        Implies(says_end(N, C), And(
            said_end(N, C) == a.end(X),
            rule('say-an-end-only-when-sealed', a.sealed(X)))))


def said_what_is_used(a, N, C):
    return And(
        says_uses(N, C) == a.uses_any(cluster(N)),
        Implies(a.uses_any(cluster(N)), said_uses(N, C) == a.uses(cluster(N))))


def ask(a, N=Node, C=Int):
    """node {N}, of cluster {cluster(N)}, asks server {sent_to(N, C)} for a lease (call {C})"""
    # SNOWFLAKE_CALL_ACQUIRE of machine.c; a result that is still out counts no more.  A node that
    # leaves its registry, or comes back to it, asks while its lease is open (decide_asking()).
    X = named(N, C)
    return And(
        Not(a.dead(N)), Not(hostile(N)), C == a.calls(N) + 1, asks(N, C), least_ahead <= said_ahead(N, C),
        rule('a-fixed-number-seals-before-asking', Implies(
            And(names(N, C), asks_fixed(N, C), asks_for(N, C, number(X))), a.sealed(X))),
        rule('say-the-end-of-all-ids', And(
            a.known(N) <= said_known(N, C), a.before(N) <= said_floor(N, C))),
        If(names(N, C), And(named_newest(a, N, C), says_end(N, C) == a.sealed(X)),
           And(every(lambda l: Not(has(a, N, l))), Not(says_end(N, C)))),
        rule('say-what-the-cluster-uses', said_what_is_used(a, N, C)),
        rule('say-when-own-tables-were-made', a.made_at(cluster(N)) <= said_made(N, C)),
    ), after(
        a, calls=lambda n: If(n == N, C, a.calls(n)), out=lambda n: Or(a.out(n), n == N),
        may=without_result(a, N))


def tell(a, N=Node, C=Int):
    """node {N} asks server {sent_to(N, C)} to renew or release lease {named(N, C)} (call {C})"""
    # SNOWFLAKE_CALL_RENEW and SNOWFLAKE_CALL_RELEASE of machine.c
    return And(
        Not(a.dead(N)), Not(hostile(N)), C == a.calls(N) + 1, Not(asks(N, C)), names(N, C),
        named_newest(a, N, C),
        rule('a-sealed-lease-is-not-renewed', Or(says_end(N, C), Not(a.sealed(named(N, C))))),
        said_what_is_used(a, N, C),
    ), after(
        a, calls=lambda n: If(n == N, C, a.calls(n)), out=lambda n: Or(a.out(n), n == N),
        may=without_result(a, N))


def lie(a, N=Node, C=Int):
    """node {N} is hostile, and sends any call to server {sent_to(N, C)} (call {C})"""
    # it has the tokens of its own leases only
    return And(
        Not(a.dead(N)), hostile(N), C == a.calls(N) + 1,
        Implies(names(N, C), And(a.granted(named(N, C)), owner(named(N, C)) == N)),
    ), after(
        a, calls=lambda n: If(n == N, C, a.calls(n)), out=lambda n: Or(a.out(n), n == N))


def take(a, L, known):
    """take_next() of machine.c: what a node knows when its newest lease is L."""
    N = owner(L)
    W = a.newest(N)
    parted = And(has(a, N, W), Not(is_akin(W, L)), kept('keep-the-end-when-the-registry-changes'))
    return dict(
        newest=lambda n: If(n == N, L, a.newest(n)),
        before=lambda n: If(And(n == N, parted), greatest(a.before(n), known), a.before(n)))


def cut(L, C, U):
    """A node takes no end later than it asked for."""
    return If(asks_until(owner(L), C) < U, asks_until(owner(L), C), U)


def opening(a, L, C, U):
    """What opening a lease demands, and the state after it."""
    N = owner(L)
    J = cluster(N)
    return And(
        a.result(L, C, U), Not(a.dead(N)), Not(hostile(N)), Not(a.opened(L)),
        rule('only-the-last-result-counts', counts(a, N, C)),
        # A1: a first use of another registry is an order, given on the cluster's only server
        rule('A1-a-first-use-is-an-order', Or(
            And(a.uses_any(J), a.uses(J) == home(L)),
            every(lambda n: Implies(And(cluster(n) == J, n != N),
                                    Or(a.dead(n), a.calls(n) == 0))))),
    ), after(
        a, out=lambda n: And(a.out(n), n != N), opened=lambda l: Or(a.opened(l), l == L),
        limit_of=lambda l: If(l == L, cut(L, C, U), a.limit_of(l)),
        uses_any=lambda j: Or(a.uses_any(j), And(j == J, kept('record-what-is-used'))),
        uses=lambda j: If(And(j == J, kept('record-what-is-used')), home(L), a.uses(j)),
        latest=lambda j: If(j == J, L, a.latest(j)),
        may=lambda l: If(l == L, a.may(l), without_result(a, N)(l)), **take(a, L, a.known(N)))


def open_lease(a, L=Lease, C=Int, U=Int):
    """node {owner(L)} opens lease {L} up to {U}"""
    # SNOWFLAKE_ACTION_OPEN, after cluster.uses was recorded (record_uses(), acquire_own_lease())
    demands, b = opening(a, L, C, U)
    return And(demands, rule('seal-before-opening', every(lambda l: Implies(
        And(a.opened(l), owner(l) == owner(L)), a.sealed(l))))), b


def change(a, X=Lease, V=Int, L=Lease, C=Int, U=Int):
    """node {owner(L)} seals lease {X}, whose ids end at {V}, and opens lease {L} up to {U}"""
    # change_over() of machine.c, when the registry that is left was named by the call
    demands, b = opening(a, L, C, U)
    guard, sealed = sealing(a, X, V)
    return And(demands, guard, owner(X) == owner(L), every(lambda l: Implies(
        And(a.opened(l), owner(l) == owner(L), l != X), a.sealed(l)))), after(
        b, sealed=sealed.sealed, bit=sealed.bit, end=sealed.end, known=sealed.known,
        may=lambda l: If(l == L, a.may(l), sealed.may(l)),
        **take(a, L, sealed.known(owner(L))))


def drop(a, L=Lease, C=Int, U=Int):
    """node {owner(L)} drops lease {L}, which it will never open"""
    # drop_next() of machine.c: the settings have changed, or record_uses() has answered no.  The
    # lease is named from then on, with its start as its end; but not while another one is open.
    N = owner(L)
    return And(
        a.result(L, C, U), Not(a.dead(N)), Not(hostile(N)), Not(a.opened(L)), counts(a, N, C),
        every(lambda l: Implies(And(a.opened(l), owner(l) == N), a.sealed(l))),
    ), after(
        a, out=lambda n: And(a.out(n), n != N), sealed=lambda l: Or(a.sealed(l), l == L),
        bit=lambda l: Or(a.bit(l), l == L), end=lambda l: If(l == L, starts(L), a.end(l)),
        may=without_result(a, N), **take(a, L, a.known(N)))


def extend(a, L=Lease, C=Int, U=Int):
    """node {owner(L)} extends lease {L} to {U}"""
    # the same action, for the result of a renewal
    N = owner(L)
    return And(
        rule('the-row-is-durable-before-the-limit', a.result(L, C, U)), Not(a.dead(N)), a.opened(L),
        rule('only-the-last-result-counts', counts(a, N, C)),
    ), after(a, out=lambda n: And(a.out(n), n != N), limit_of=lambda l: If(
                 l == L, greatest(a.limit_of(L), cut(L, C, U)), a.limit_of(l)),
             bit=lambda l: And(a.bit(l), l != L), may=without_result(a, N))


def issue(a, L=Lease, T=Tick):
    """node {owner(L)} issues an id: number {number(L)}, tick {begins(T)} to {ends(T)}"""
    # src/ids: the word is not sealed, and the tick is inside start and limit
    return And(
        a.opened(L), Not(a.dead(owner(L))),
        rule('a-sealed-word-issues-nothing', Not(a.bit(L))),
        rule('a-tick-begins-after-the-start', starts(L) <= begins(T)),
        rule('a-tick-ends-before-the-limit', ends(T) <= a.limit_of(L)),
    ), after(a, issued=lambda l, t: Or(a.issued(l, t), And(l == L, t == T)))


def sealing(a, L, U):
    """What sealing the words of a lease demands, and the state after it."""
    N = owner(L)
    return And(
        a.opened(L), Not(a.sealed(L)), Not(a.dead(N)), U <= greatest(starts(L), a.limit_of(L)),
        rule('tell-the-true-end', every(lambda t: Implies(a.issued(L, t), ends(t) <= U))),
    ), after(
        a, sealed=lambda l: Or(a.sealed(l), l == L),
        bit=lambda l: Or(a.bit(l), And(l == L, kept('seal-before-the-end-is-told'))),
        end=lambda l: If(l == L, U, a.end(l)),
        known=lambda n: If(n == N, greatest(a.known(n), U), a.known(n)),
        out=lambda n: And(a.out(n), Not(And(n == N, kept('sealing-gives-up-the-call')))),
        may=lambda l: If(And(l == L, U < a.may(L)), U, without_result(a, N)(l)))


def seal(a, L=Lease, U=Int):
    """node {owner(L)} seals lease {L}; its ids end at {U}"""
    # SNOWFLAKE_ACTION_SEAL; a call that is out is given up
    return sealing(a, L, U)


def crash(a, N=Node, ENDS={'l': Int}):
    """node {N} crashes"""
    # for ever: the next start is another node.  ENDS, proof only: what it has issued.
    return every(lambda l: Implies(owner(l) == N, And(
        ENDS(l) <= a.may(l), every(lambda t: Implies(a.issued(l, t), ends(t) <= ENDS(l)))))), after(
        a, dead=lambda n: Or(a.dead(n), n == N),
        may=lambda l: If(And(owner(l) == N, a.opened(l)), ENDS(l), without_result(a, N)(l)))


ACTIONS = dict(
    acquire_lease=acquire_lease, renew_lease=renew_lease, release_lease=release_lease,
    note_lost_end=note_lost_end, merge_rows=merge_rows,
    merge_record=merge_record,
    pass_time=pass_time, replicate=replicate, stop=stop, promote=promote,
    count_generation=count_generation, leases_are_over=leases_are_over, note_copy=note_copy,
    become_node=become_node, upgrade=upgrade,
    create=create, change_layout=change_layout, limit_leases=limit_leases,
    limit_has_passed=limit_has_passed, close_registry=close_registry, take_over=take_over,
    take_over_again=take_over_again, take_over_lost=take_over_lost,
    take_over_lost_again=take_over_lost_again, ids_end_before=ids_end_before,
    ids_of_role_end_before=ids_of_role_end_before,
    ask=ask, tell=tell, lie=lie, open=open_lease, change=change, drop=drop, extend=extend,
    issue=issue, seal=seal, crash=crash)
