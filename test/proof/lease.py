"""The lease protocol as transitions, with its invariants.

Read README first.  The order here is: the world and what is in it, the invariants, the
assumptions, and then the actions: of a registry, of its administrators, of its servers, and
of nodes.  Each action is one function and says which function of the registry's SQL or of the
lease machine it stands for.  Nothing is bounded: sets of leases, nodes, numbers, ticks,
servers and registries are of any size, and times are any integers.

A rule of the contract stands in an action as rule('its-name', what it demands).  It can be
taken out by that name: stories.py says what happens then.
"""
from z3 import And, BoolSort, BoolVal, Const, Function, If, Implies, IntSort, Not, Or

from world import (Cluster, Lease, Node, Number, Registry, Server, Tick, after, even, every,
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

# A call of a node: (node, number of the call)
sent_to = Function('sent_to', Node, Int, Server)        # what carries it out is in this place
asks = Function('asks', Node, Int, Bool)            # acquire_lease; otherwise renew or release
asks_for = Function('asks_for', Node, Int, Number, Bool)    # for one of these numbers,
asks_fixed = Function('asks_fixed', Node, Int, Bool)        # which are the node's own, fixed ones
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

# Others
bit0 = Function('bit0', Number, Bool)               # bit 0 of the number, in every layout
begins = Function('begins', Tick, Int)              # a tick of some layout is a span of time
ends = Function('ends', Tick, Int)
cluster = Function('cluster', Node, Cluster)        # a node is one start of a server of this
registry = Function('registry', Server, Registry)   # an incarnation of tables
primary = Function('primary', Server, Server)       # the server that it is or was a standby of
place = Function('place', Server, Server)           # where calls reach it: it, or the server that it
                                                    # was before take_over() changed its generation
tables_of = Function('tables_of', Server, Cluster)  # whose own tables these are
history = Function('history', Server, Int)          # the generation that its timeline history makes
turn = Function('turn', Server, Int)                # proof only: servers as they first ran
least_ahead = Const('least_ahead', Int)             # the least max_ahead of all nodes (A4)

# ---------------------------------------------------------------------------------------------
# What changes.
# ---------------------------------------------------------------------------------------------
TABLES = dict(                                      # of a server; a standby has a copy
    made=(Server, Bool),                            # CREATE EXTENSION was carried out
    row=(Server, Lease, Bool),                      # worker_node has a row for the lease:
    until=(Server, Lease, Int),                     # its leased_until
    open=(Server, Lease, Bool),                     # its closed_at is NULL
    last_call=(Server, Node, Int),                  # the last call that is on record in a row
    generation=(Server, Int),
    created=(Server, Int),                          # created_at
    floor=(Server, Int),                            # the latest time that was stored
    old_end=(Server, Number, Int),                  # greatest end in rows of other incarnations
    taken=(Server, Registry, Bool),                 # taken over, with all that those took over
    took_over=(Server, Bool),                       # taken_over is not empty
    closed=(Server, Bool),                          # close_registry() was carried out
)
STATE = dict(
    TABLES,
    ran=(Server, Bool),                             # was writable once
    live=(Server, Bool),                            # is writable, or can be again
    promoted_at=(Server, Int),                      # its clock when it was promoted
    counted=(Server, Bool),                         # has looked at its timeline history since
    calls=(Node, Int),                              # the number of the last call that was sent
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
    limit=(Lease, Int),                             # the limit in shared memory
    end=(Lease, Int),                               # what sealing told as the end of its ids
    issued=(Lease, Tick, Bool),                     # an id with this tick and the lease's number
    uses_any=(Cluster, Bool),                       # the record `cluster.uses` is there,
    uses=(Cluster, Registry),                       # and says this
    made_at=(Cluster, Int),                         # created_at of its own tables
    latest=(Cluster, Lease),                        # proof only: the lease that was opened last
    may=(Lease, Int),                               # proof only: no id of the lease ends later,
)                                                   # and none ever will


def granted(a, l):
    return a.row(granter(l), l)


def counts(a, n, c):
    """Whether the result of a call would count."""
    return And(a.out(n), c == a.calls(n), Not(a.dead(n)))


def may_be_opened(a, l):
    return And(granted(a, l), Not(a.opened(l)), counts(a, owner(l), granted_by(l)))


def is_over(a, l):
    """No result can open or extend the lease any more."""
    return Or(a.sealed(l), a.dead(owner(l)),
              And(Not(a.opened(l)), Not(counts(a, owner(l), granted_by(l)))))


def has(a, n, l):
    """The node has had the lease: it opened it, or has dropped it, and names it from then on."""
    return And(owner(l) == n, Or(a.opened(l), a.sealed(l)))


def home(l):
    return registry(granter(l))


def has_other_parity(a, s, l):
    """The lease is of an automatic number that the tables of s, in their generation, never grant."""
    return And(Not(fixed(l)), bit0(number(l)) != even(a.generation(s)))


def in_tables(a, s, l):
    return And(a.row(s, l), a.may(l) <= a.until(s, l))


def issues_nothing(a, l):
    """The lease has issued no id, and never will."""
    return And(is_over(a, l), a.may(l) <= starts(l))


def is_over_for_all(a, s, l):
    """All leases that s grants of the number start at or after the end of this one."""
    return Or(a.may(l) <= a.created(s) + least_ahead, a.may(l) <= a.floor(s),
              a.may(l) <= a.old_end(s, number(l)), issues_nothing(a, l))


def is_recorded(a, l):
    """The record of its cluster is this lease's registry, or a successor."""
    j = cluster(owner(l))
    return And(a.uses_any(j), Or(home(l) == a.uses(j), succeeds(a.latest(j), home(l))))


def is_forgotten(a, l):
    """It was over when its cluster's own tables were made."""
    return And(is_over(a, l), a.may(l) <= a.made_at(cluster(owner(l))) + least_ahead)


def is_akin(l, m):
    """The leases are of the same incarnation and generation, as far as a node can tell."""
    return And(home(l) == home(m), leased_in(l) == leased_in(m))


# ---------------------------------------------------------------------------------------------
# The invariants.
# ---------------------------------------------------------------------------------------------
def invariants(a):
    return {
        # The promise, for leases of one server: the next lease of a number starts at or after
        # the end of all earlier ones; their rows are closed.
        'a number is leased again after the end of its leases': every(lambda l, m: Implies(
            And(granted(a, l), granted(a, m), granter(l) == granter(m), number(l) == number(m),
                order(l) < order(m)),
            And(a.may(l) <= starts(m), Not(a.open(granter(l), l))))),

        # The same for two servers with one registry's tables, and automatic numbers.
        'generations of one parity follow one another': every(lambda l, m: Implies(
            And(granted(a, l), granted(a, m), home(l) == home(m), number(l) == number(m),
                Not(fixed(l)), Not(fixed(m)), turn(granter(l)) < turn(granter(m))),
            a.may(l) <= starts(m))),

        # The same for fixed numbers.
        'fixed numbers follow one another': every(lambda l, m: Implies(
            And(granted(a, l), granted(a, m), home(l) == home(m), number(l) == number(m),
                granter(l) != granter(m), Or(fixed(l), fixed(m)), order(l) < order(m)),
            Or(And(a.may(l) <= starts(m), Or(is_over(a, l), Not(a.live(granter(l))))),
               issues_nothing(a, l), issues_nothing(a, m)))),

        # The same for a registry and those that it has taken over.
        'a successor leases a number after the end of its leases': every(lambda l, m: Implies(
            And(granted(a, l), granted(a, m), succeeds(m, home(l)), number(l) == number(m)),
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
            And(a.opened(l), Not(a.sealed(l)), Not(a.dead(owner(l)))), a.limit(l) <= a.may(l))),
        'the row has the end': every(lambda l: Implies(
            granted(a, l), a.may(l) <= a.until(granter(l), l))),
        'each grant has its turn': every(lambda l, m: Implies(
            And(granted(a, l), granted(a, m), l != m), order(l) != order(m))),

        # Calls and results.
        'rows': every(lambda s, l: Implies(a.row(s, l), And(
            granted(a, l), a.ran(granter(l)), registry(s) == home(l),
            leased_in(l) <= a.generation(s),
            granted_by(l) <= a.last_call(s, owner(l)), granted_by(l) <= a.calls(owner(l)),
            0 < granted_by(l), sent_to(owner(l), granted_by(l)) == place(granter(l)),
            starts(l) <= a.until(s, l)))),
        'a result that counts is in the row': every(lambda l, c, u: Implies(a.result(l, c, u), And(
            granted(a, l), granted_by(l) <= c, c <= a.calls(owner(l)),
            Or(has(a, owner(l), l), c == granted_by(l)),
            Implies(counts(a, owner(l), c), And(Not(a.sealed(l)), u <= a.may(l)))))),
        'an opened lease was granted': every(lambda l: And(
            Implies(a.sealed(l), a.bit(l)), Implies(Or(a.opened(l), a.sealed(l)), granted(a, l)))),
        'a call names the newest lease': every(lambda n, c, l: Implies(
            And(0 < c, c <= a.calls(n), names(n, c)),
            And(has(a, n, named(n, c)),
                Implies(And(has(a, n, l), granted_by(l) < c),
                        granted_by(l) <= granted_by(named(n, c))),
                Implies(And(granted(a, l), owner(l) == n, granted_by(named(n, c)) < granted_by(l),
                            granted_by(l) < c),
                        a.may(l) <= starts(l))))),
        'a lease whose result was lost issues nothing': every(lambda l: Implies(
            And(granted(a, l), Not(a.opened(l)), Not(counts(a, owner(l), granted_by(l)))),
            a.may(l) <= starts(l))),
        'an end that was sent is true': every(lambda n, c: Implies(
            And(0 < c, c <= a.calls(n), says_end(n, c)),
            And(names(n, c), a.sealed(named(n, c)), a.may(named(n, c)) <= said_end(n, c)))),
        'a call that may extend a lease names an open one': every(lambda n: Implies(
            And(counts(a, n, a.calls(n)), names(n, a.calls(n)), Not(says_end(n, a.calls(n))),
                Not(asks(n, a.calls(n)))),
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
            And(0 < c, c <= a.calls(n), asks(n, c)),
            And(least_ahead <= said_ahead(n, c), Implies(
                And(granted(a, l), owner(l) == n, granted_by(l) < c),
                Or(And(Not(a.opened(l)), a.may(l) <= starts(l)),
                   And(a.sealed(l), a.may(l) <= said_known(n, c),
                       Implies(names(n, c), Or(is_akin(l, named(n, c)),
                                               a.may(l) <= said_floor(n, c)))),
                   Not(And(asks_fixed(n, c), asks_for(n, c, number(l))))))))),
        'calls are granted one lease, in their order': every(lambda l, m: Implies(
            And(granted(a, l), granted(a, m), owner(l) == owner(m), order(l) < order(m)),
            And(granted_by(l) != granted_by(m),
                Implies(granted_by(m) < granted_by(l), Not(a.opened(m)))))),
        'a node counts its calls from one': every(lambda n: And(
            0 <= a.calls(n), Implies(a.out(n), 0 < a.calls(n)))),

        # Servers and generations.
        'one server is in a place': every(lambda s, q: Implies(
            And(a.ran(s), a.ran(q), s != q, place(s) == place(q)),
            And(turn(s) != turn(q), Implies(turn(s) < turn(q), Not(a.live(s)))))),
        'a server knows the calls that reached its place': every(lambda s, l: Implies(
            And(a.ran(s), granted(a, l), place(granter(l)) == place(s),
                turn(granter(l)) <= turn(s)),
            granted_by(l) <= a.last_call(s, owner(l)))),
        'a lease has the generation of its server': every(lambda l: Implies(granted(a, l), And(
            leased_in(l) == history(granter(l)), a.counted(granter(l)),
            Implies(Not(fixed(l)), bit0(number(l)) == even(leased_in(l)))))),
        'a server that counted renews its own leases only': every(lambda s, l: Implies(
            And(a.counted(s), a.row(s, l), a.open(s, l), leased_in(l) == a.generation(s)),
            granter(l) == s)),
        'generations are counted once': every(lambda s: And(
            1 <= a.generation(s),
            Implies(a.ran(s), And(
                a.made(s), a.generation(s) <= history(s),
                Implies(a.counted(s), a.generation(s) == history(s)))),
            Implies(And(a.ran(s), Not(a.counted(s))), a.generation(s) < history(s)),
            Implies(a.counted(s), a.ran(s)),
            Implies(Not(a.ran(s)), And(
                a.generation(s) <= a.generation(primary(s)), Not(a.live(s)))))),
        'two writable servers have different parities': every(lambda s, q: Implies(
            And(a.ran(s), a.ran(q), registry(s) == registry(q), s != q),
            And(turn(s) != turn(q),
                Implies(And(turn(q) < turn(s), even(history(q)) == even(history(s))),
                        Not(a.live(q)))))),
        'what a server does not know of its parity is over': every(lambda s, l: Implies(
            And(a.ran(s), granted(a, l), home(l) == registry(s),
                turn(granter(l)) < turn(s), even(history(granter(l))) == even(history(s))),
            Or(a.may(l) <= a.promoted_at(s), And(a.row(s, l), a.may(l) <= a.until(s, l))))),
        'the stored time is that of the count or later': every(lambda s: Implies(
            a.counted(s), a.promoted_at(s) <= a.floor(s))),

        # Closing and taking over.
        'a standby without tables is empty': every(lambda s, r: Implies(Not(a.made(s)), And(
            a.generation(s) == 1, Not(a.closed(s)), Not(a.taken(s, r))))),
        'a registry that is closed has one state': every(lambda s, q: Implies(
            And(registry(s) == registry(q), a.closed(s), a.live(q)), a.closed(q))),
        'a closed registry knows all ends': every(lambda s, l: Implies(
            And(a.closed(s), granted(a, l), home(l) == registry(s), Not(fixed(l))),
            Or(a.may(l) <= a.floor(s), in_tables(a, s, l), has_other_parity(a, s, l)))),
        'a registry that was taken over has ended': every(lambda s, r, q: Implies(
            And(a.taken(s, r), registry(q) == r),
            And(registry(s) != r, Or(Not(a.live(q)), a.closed(q))))),
        'a registry knows the ends of those it has taken over': every(lambda s, l: Implies(
            And(a.taken(s, home(l)), granted(a, l), Not(fixed(l))),
            Or(is_over_for_all(a, s, l), has_other_parity(a, s, l)))),
        'what was forgotten is over for all': every(lambda s, l: Implies(
            And(a.taken(s, home(l)), granted(a, l), Not(a.took_over(s))),
            is_over_for_all(a, s, l))),
        'a promoted server knows them before it counts': every(lambda s, l: Implies(
            And(a.ran(s), Not(a.counted(s)), a.taken(s, home(l)), granted(a, l), Not(fixed(l))),
            Or(is_over_for_all(a, s, l), a.may(l) <= a.promoted_at(s)))),
        'orders are on every server that can be writable': every(lambda s, q, r: Implies(
            And(registry(s) == registry(q), a.live(s), a.taken(q, r)), a.taken(s, r))),
        'with a registry those are taken over that it took over': every(lambda s, q, r: Implies(
            And(a.taken(s, registry(q)), a.taken(q, r)), a.taken(s, r))),
        'a lease succeeds what its server has taken over': every(lambda l, r: Implies(
            And(granted(a, l), succeeds(l, r)), a.taken(granter(l), r))),

        # The source guard.
        'a cluster records what it uses, or has forgotten it': every(lambda l: Implies(
            a.opened(l), Or(is_recorded(a, l), is_forgotten(a, l)))),
        'a record is made by a lease': every(lambda j: Implies(
            a.uses_any(j), And(a.opened(a.latest(j)), cluster(owner(a.latest(j))) == j,
                               home(a.latest(j)) == a.uses(j)))),
        'a call says what its cluster uses': every(lambda n: Implies(
            And(Not(a.dead(n)), a.out(n)),
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
            a.live(s) == a.ran(s), a.made(s) == a.ran(s), a.counted(s) == a.ran(s),
            a.generation(s) == 1, Not(a.closed(s)), Not(a.took_over(s)),
            Implies(a.ran(s), And(history(s) == 1, place(s) == s, a.promoted_at(s) <= a.floor(s))))),
        every(lambda s, l: Not(a.row(s, l))),
        every(lambda s, n: a.last_call(s, n) == 0),
        every(lambda s, r: Not(a.taken(s, r))),
        every(lambda n: And(a.calls(n) == 0, Not(a.out(n)), Not(a.dead(n)))),
        every(lambda l: And(Not(a.opened(l)), Not(a.sealed(l)), Not(a.bit(l)))),
        every(lambda l, t: Not(a.issued(l, t))),
        every(lambda l, c, u: Not(a.result(l, c, u))),
        every(lambda j: Not(a.uses_any(j))))


def duplicate(a, l, m, t):
    """Two leases of one deployment have issued the same (tick, number)."""
    return And(
        l != m, number(l) == number(m), a.issued(l, t), a.issued(m, t),
        Or(home(l) == home(m), succeeds(l, home(m)), succeeds(m, home(l)),
           cluster(owner(l)) == cluster(owner(m))))


# The model is about these facts of the world, too.
def world():
    return And(least_ahead >= 0, every(lambda t: begins(t) < ends(t)))


# ---------------------------------------------------------------------------------------------
# The assumptions, A1 to A5 of the contract, where they are about the lease protocol.  `may` is
# the end of the ids that a lease has issued or may still issue.
# ---------------------------------------------------------------------------------------------
def only_server(a, S):
    """A1: an order is given on the only server of a registry that is or can be writable."""
    return every(lambda q: Implies(And(registry(q) == registry(S), a.live(q)), q == S))


def orders_reached(a, S):
    """A1: orders are on every standby, and in every backup, that may become writable."""
    return every(lambda q, r: And(
        Implies(And(registry(q) == registry(S), a.closed(q)), a.closed(S)),
        Implies(And(registry(q) == registry(S), a.taken(q, r)), a.taken(S, r)),
        Implies(a.taken(q, registry(S)), a.closed(S))))


def is_plain(S):
    """Its timeline history is that of the server that last wrote WAL which it has, and one entry."""
    return history(S) == history(primary(S)) + 1


def at_most_two(a, S):
    """A3: no server is writable but, at a plain promotion, the one that this one goes on from."""
    return every(lambda q: Implies(And(registry(q) == registry(S), a.live(q)),
                                   And(q == primary(S), is_plain(S))))


def lost_ends_are_over(a, S, P, clock, plain=True):
    """A3: an end that is not in the tables is over by the clock, but, at a plain promotion, for
    those that P granted: each other server has been stopped for the longest window."""
    return every(lambda l: Implies(granted(a, l), And(
        Implies(And(home(l) == registry(S), Not(And(granter(l) == P, plain))),
                Or(a.may(l) <= clock, in_tables(a, S, l))),
        Implies(a.taken(S, home(l)), Or(a.may(l) <= clock, is_over_for_all(a, S, l))))))


def fixed_number_is_alone(a, S, N, L, C):
    """A3: a fixed number has one running server, whose clock is not behind its own last ids; a
    former primary runs only as a standby; fixed and automatic numbers are not mixed.  Or A1: with
    another's registry a synchronous standby and an old primary that is stopped."""
    return every(lambda l: Implies(
        And(granted(a, l), home(l) == registry(S), granter(l) != S, number(l) == number(L),
            Or(fixed(l), fixed(L))),
        Or(And(fixed(l), fixed(L), owner(l) == N),
           And(fixed(l), fixed(L), a.dead(owner(l)), a.may(l) <= said_clock(N, C),
               a.generation(S) > 1),
           And(Not(a.live(granter(l))), in_tables(a, S, l)))))


def fixed_number_was_alone(a, S, N, L, C):
    """The same for a number that a registry granted which was taken over."""
    return every(lambda l: Implies(
        And(granted(a, l), a.taken(S, home(l)), number(l) == number(L), Or(fixed(l), fixed(L))),
        Or(is_over_for_all(a, S, l), And(fixed(l), fixed(L), Or(
            owner(l) == N, And(a.dead(owner(l)), a.may(l) <= said_clock(N, C)))))))


# ---------------------------------------------------------------------------------------------
# What a registry does.  L, X are leases, S, R servers, N a node, C the number of a call, U a
# time, CLOCK the clock of whoever acts.
# ---------------------------------------------------------------------------------------------
def begin_call(a, S, N, C):
    """The head of each call, of acquire_lease(), renew_lease() and release_lease(): what it
    demands, and the tables after it.  It closes the lease whose end the call says, and the
    node's other rows.  The number of the call is kept in a row of the node, if there is one."""
    mine = lambda l: And(a.row(S, l), a.open(S, l), owner(l) == N)
    is_named = lambda l: And(names(N, C), l == named(N, C))
    ended = lambda l: And(mine(l), is_named(l), says_end(N, C))
    closed = lambda l: And(mine(l), Not(is_named(l)), kept('a-call-closes-what-it-does-not-name'))
    never_opened = lambda l: And(names(N, C), rule('close-at-start-what-was-granted-later',
                                                  granted_by(named(N, C)) < granted_by(l)))
    until = lambda l: If(ended(l), greatest(starts(l), said_end(N, C)),
                         If(And(closed(l), never_opened(l)), starts(l), a.until(S, l)))
    demands = And(
        a.live(S), sent_to(N, C) == place(S), 0 < C, C <= a.calls(N),
        rule('count-at-the-head-of-every-call', a.counted(S)),
        rule('refuse-late-calls', C > a.last_call(S, N)))
    return demands, after(
        a,
        last_call=lambda s, n: If(And(s == S, n == N, 0 < a.last_call(s, n), a.last_call(s, n) < C),
                                  C, a.last_call(s, n)),
        until=lambda s, l: If(s == S, until(l), a.until(s, l)),
        open=lambda s, l: And(a.open(s, l), Not(And(s == S, Or(ended(l), closed(l))))))


def grant(a, S=Server, N=Node, C=Int, L=Lease, U=Int):
    """server {S} grants node {N} (call {C}) lease {L}: number {number(L)}, {starts(L)} to {U}"""
    # snowflake.acquire_lease() and acquire_own_lease(); the node chooses U, the window
    demands, b = begin_call(a, S, N, C)
    same = lambda l: And(b.row(S, l), number(l) == number(L))
    return And(
        demands, asks(N, C), Not(a.row(S, L)), granter(L) == S, owner(L) == N, granted_by(L) == C,
        asks_for(N, C, number(L)), fixed(L) == asks_fixed(N, C),
        leased_in(L) == a.generation(S), starts(L) <= U,
        every(lambda l: Implies(granted(a, l), order(l) < order(L))),
        every(lambda r: succeeds(L, r) == a.taken(S, r)),
        rule('a-closed-registry-grants-nothing', Not(a.closed(S))),
        rule('parity', Implies(Not(fixed(L)), bit0(number(L)) == even(a.generation(S)))),
        rule('start-after-all-rows-of-the-number', every(lambda l: Implies(
            same(l), b.until(S, l) <= starts(L)))),
        rule('start-after-rows-of-other-incarnations', a.old_end(S, number(L)) <= starts(L)),
        rule('start-after-the-creation', a.created(S) + (
            said_ahead(N, C) if kept('max-ahead-past-the-creation') else 0) <= starts(L)),
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
        rule('A3-a-fixed-number-is-alone', And(
            fixed_number_is_alone(a, S, N, L, C), fixed_number_was_alone(a, S, N, L, C))),
    ), after(
        b,
        row=lambda s, l: Or(b.row(s, l), And(s == S, l == L)),
        last_call=lambda s, n: If(And(s == S, n == N, b.last_call(s, n) < C), C, b.last_call(s, n)),
        until=lambda s, l: If(And(s == S, l == L), U, b.until(s, l)),
        open=lambda s, l: If(s == S, Or(l == L, And(b.open(s, l), Not(And(
            kept('a-grant-closes-the-rows-of-its-number'), same(l))))), b.open(s, l)),
        result=lambda l, c, u: Or(b.result(l, c, u), And(l == L, c == C, u == U)),
        may=lambda l: If(l == L, If(counts(a, N, C), U, starts(L)), a.may(l)))


def renew(a, S=Server, N=Node, C=Int, X=Lease, U=Int):
    """server {S} renews lease {X} of node {N} (call {C}) to {U}"""
    # snowflake.renew_lease()
    demands, b = begin_call(a, S, N, C)
    return And(
        demands, Not(asks(N, C)), names(N, C), X == named(N, C), a.row(S, X), Not(says_end(N, C)),
        rule('a-closed-registry-renews-nothing', Not(a.closed(S))),
        rule('renew-open-rows-only', a.open(S, X)),
        rule('renew-within-the-generation', leased_in(X) == a.generation(S)),
        rule('a-renewal-never-lowers', a.until(S, X) <= U), starts(X) <= U,
    ), after(
        b,
        until=lambda s, l: If(And(s == S, l == X), U, b.until(s, l)),
        result=lambda l, c, u: Or(b.result(l, c, u), And(l == X, c == C, u == U)),
        may=lambda l: If(And(l == X, counts(a, N, C), Not(a.sealed(X)), U > a.may(X)), U, a.may(l)))


def release(a, S=Server, N=Node, C=Int):
    """server {S} carries out call {C} of node {N} and closes what the call has no use for"""
    # snowflake.release_lease(); also any other call that changes nothing more
    demands, b = begin_call(a, S, N, C)
    return And(demands, rule('a-closed-registry-changes-nothing', Not(a.closed(S)))), b


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
    return And(Not(a.ran(S)), R == primary(S), registry(S) == registry(R)), after(
        a, **copied(a, S, R))


def stop(a, R=Server):
    """server {R} is stopped for good"""
    return a.live(R), after(a, live=lambda s: And(a.live(s), s != R))


def is_next(a, S):
    """S has not run yet, and all that ran did before it."""
    return And(Not(a.ran(S)), every(lambda s: Implies(a.ran(s), turn(s) < turn(S))))


def has_own_place(a, S):
    return And(place(S) == S, every(lambda s: Implies(a.ran(s), place(s) != S)))


def promote(a, S=Server, CLOCK=Int):
    """standby {S} of {primary(S)} is promoted or restored; its clock is {CLOCK}"""
    # its timeline history is that of its primary and one entry; or more, as after a restore along
    # the timeline of a server whose WAL it does not have
    return And(
        is_next(a, S), has_own_place(a, S), a.made(S), a.ran(primary(S)),
        registry(primary(S)) == registry(S), history(primary(S)) < history(S),
        rule('A1-orders-reach-every-standby', orders_reached(a, S)),
        rule('A3-at-most-two-servers', at_most_two(a, S)),
        rule('A3-lost-ends-are-over', lost_ends_are_over(a, S, primary(S), CLOCK, is_plain(S))),
    ), after(
        a, ran=lambda s: Or(a.ran(s), s == S), live=lambda s: Or(a.live(s), s == S),
        promoted_at=lambda s: If(s == S, CLOCK, a.promoted_at(s)))


def count(a, S=Server, CLOCK=Int):
    """server {S} counts generation {history(S)} at {CLOCK}"""
    # the head of every call, and snowflake.start_server(): entries of the timeline history that
    # were not counted
    counted = history(S) if kept('count-every-entry') else a.generation(S) + 1
    stored = CLOCK if kept('store-the-time-of-the-count') else a.floor(S)
    return And(
        a.live(S), Not(a.counted(S)),
        rule('A3-clocks-are-right', a.promoted_at(S) <= CLOCK),
    ), after(
        a, counted=lambda s: Or(a.counted(s), s == S),
        generation=lambda s: If(s == S, counted, a.generation(s)),
        floor=lambda s: If(s == S, greatest(stored, a.floor(S)) if kept('a-floor-never-falls')
                           else stored, a.floor(s)))


def upgrade(a, S=Server, CLOCK=Int):
    """server {S}, promoted from {primary(S)} and then upgraded, is first called at {CLOCK}"""
    # after pg_upgrade the timeline history is empty, and the system identifier is another one
    return And(
        is_next(a, S), has_own_place(a, S), a.made(S), a.ran(primary(S)),
        registry(primary(S)) == registry(S), history(S) == a.generation(S),
        rule('A1-orders-reach-every-standby', orders_reached(a, S)),
        # A5: the old primary is gone and the clock is not behind any end that it granted
        rule('A5-the-old-primary-is-gone', every(lambda q: Implies(registry(q) == registry(S),
                                                                   Not(a.live(q))))),
        rule('A5-what-it-granted-is-over', every(lambda l: Implies(
            And(granted(a, l), granter(l) == primary(S)), a.may(l) <= CLOCK))),
        lost_ends_are_over(a, S, primary(S), CLOCK),
    ), after(
        a, ran=lambda s: Or(a.ran(s), s == S), live=lambda s: Or(a.live(s), s == S),
        promoted_at=lambda s: If(s == S, CLOCK, a.promoted_at(s)),
        counted=lambda s: Or(a.counted(s), s == S),
        floor=lambda s: If(And(s == S, kept('store-the-time-of-pg-upgrade')),
                           greatest(a.floor(S), CLOCK), a.floor(s)),
        open=lambda s, l: And(a.open(s, l), Not(And(s == S, kept('pg-upgrade-closes-rows')))))


def restore_rows(a, S=Server, ENDS={'k': Int}):
    """rows of a dump, of other incarnations, are restored into the tables of server {S}"""
    return And(a.live(S), every(lambda k: a.old_end(S, k) <= ENDS(k))), after(
        a, old_end=lambda s, k: If(s == S, ENDS(k), a.old_end(s, k)))


# ---------------------------------------------------------------------------------------------
# What administrators do: orders.
# ---------------------------------------------------------------------------------------------
def is_new(a, R):
    """An incarnation is a random uuid."""
    return every(lambda q: And(Not(a.taken(q, R)), Implies(registry(q) == R, And(
        Not(a.ran(q)), Not(a.made(q))))))


def create(a, S=Server, LOST={'r': Bool}, ENDS={'k': Int}, CLOCK=Int):
    """CREATE EXTENSION at {CLOCK} on cluster {tables_of(S)}: server {S}, generation {history(S)}"""
    # On a new cluster, or after DROP EXTENSION snowflake_registry; or a template copy takes the
    # place of postgres.  The generation may be any: a template copy goes on with that of its
    # original, and a server that was promoted before counts its history.  What the old tables had
    # is gone: rows, what they had taken over, what this cluster used.  LOST are the registries
    # that they were and had taken over (none, on a new cluster).  Nodes of these are accepted, as
    # after take_over() of one that is lost; rows of any may be restored.
    J = tables_of(S)
    return And(
        is_new(a, registry(S)), is_next(a, S), has_own_place(a, S),
        1 <= history(S), Not(LOST(registry(S))),
        every(lambda q, r: Implies(And(LOST(registry(q)), a.taken(q, r)), LOST(r))),
        # A4: nothing of the old registry runs, the server itself has no lease, and no id is later
        # than this + the least max_ahead
        rule('A4-no-id-is-later', every(lambda l: Implies(
            Or(And(granted(a, l), LOST(home(l))), And(a.opened(l), cluster(owner(l)) == J)),
            Or(a.may(l) <= CLOCK + least_ahead, And(Not(a.opened(l)), issues_nothing(a, l)))))),
        rule('A4-the-server-has-no-lease', And(
            every(lambda l: Implies(And(a.opened(l), cluster(owner(l)) == J), is_over(a, l))),
            every(lambda n: Implies(cluster(n) == J, Or(a.dead(n), Not(a.out(n))))))),
    ), after(
        a,
        live=lambda s: Or(s == S, And(a.live(s), Not(LOST(registry(s))))),
        ran=lambda s: Or(a.ran(s), s == S), made=lambda s: Or(a.made(s), s == S),
        counted=lambda s: Or(a.counted(s), s == S),
        generation=lambda s: If(s == S, history(S), a.generation(s)),
        promoted_at=lambda s: If(s == S, a.floor(S), a.promoted_at(s)),
        row=lambda s, l: And(a.row(s, l), s != S), closed=lambda s: And(a.closed(s), s != S),
        taken=lambda s, r: If(s == S, LOST(r), a.taken(s, r)),
        took_over=lambda s: And(a.took_over(s), s != S),
        created=lambda s: If(And(s == S, kept('created-at')), CLOCK, a.created(s)),
        old_end=lambda s, k: If(s == S, ENDS(k), a.old_end(s, k)),
        uses_any=lambda j: And(a.uses_any(j), j != J),
        made_at=lambda j: If(j == J, CLOCK, a.made_at(j)))


def close(a, R=Server):
    """close_registry() on server {R}"""
    # snowflake.close_registry()
    return And(
        a.live(R), a.counted(R),
        rule('A1-close-the-only-server', only_server(a, R)),
    ), after(a, closed=lambda s: Or(a.closed(s), s == R))


def ends_of(a, R, ENDS):
    """What closed_registry() says of R: the greatest end of each number."""
    return And(
        rule('hand-on-the-ends-of-rows', every(lambda l: Implies(
            a.row(R, l), a.until(R, l) <= ENDS(number(l))))),
        rule('hand-on-the-ends-of-predecessors', every(lambda k: a.old_end(R, k) <= ENDS(k))))


def may_take_over(a, S, R, ENDS):
    return And(
        a.live(S), Not(a.closed(S)), a.counted(S), only_server(a, S),
        registry(S) != registry(R), a.live(R), rule('close-before-taking-over', a.closed(R)),
        every(lambda k: a.old_end(S, k) <= ENDS(k)), ends_of(a, R, ENDS))


def handed_on(a, S, R):
    """The floor of S after it has taken over R, and its creation."""
    return (greatest(a.floor(S), a.floor(R) if kept('hand-on-the-floor') else a.floor(S)),
            greatest(a.created(S), a.created(R) if kept('hand-on-the-creation') else a.created(S)))


def has_parity_of(a, S, R):
    """What a failover of R has lost is of the other parity."""
    return rule('take-over-the-parity', even(history(S)) == even(a.generation(R)))


def take_over(a, S=Server, R=Server, ENDS={'k': Int}):
    """take_over() on server {S}, of the registry of server {R}"""
    # snowflake.take_over(), with the result of snowflake.closed_registry() on R
    floor, created = handed_on(a, S, R)
    return And(may_take_over(a, S, R, ENDS), has_parity_of(a, S, R)), after(
        a,
        taken=lambda s, r: Or(a.taken(s, r), And(s == S, Or(r == registry(R), a.taken(R, r)))),
        took_over=lambda s: Or(a.took_over(s), s == S),
        old_end=lambda s, k: If(s == S, ENDS(k), a.old_end(s, k)),
        created=lambda s: If(s == S, created, a.created(s)),
        floor=lambda s: If(s == S, floor, a.floor(s)))


def take_over_and_count(a, S=Server, R=Server, X=Server, ENDS={'k': Int}, CLOCK=Int):
    """take_over() on server {S} at {CLOCK}, of the registry of server {R}: a generation is counted"""
    # The same, where the generations have different parities: as if S was promoted.  X is S from
    # then on.
    b = after(a, **copied(a, X, S))
    floor, created = handed_on(a, S, R)
    return And(
        may_take_over(a, S, R, ENDS), is_next(a, X), place(X) == place(S),
        registry(X) == registry(S), primary(X) == S, history(X) == history(S) + 1,
        has_parity_of(a, X, R), rule('A3-clocks-are-right', a.promoted_at(S) <= CLOCK),
        rule('A3-lost-ends-are-over', lost_ends_are_over(a, S, S, CLOCK)),
    ), after(
        b,
        ran=lambda s: Or(a.ran(s), s == X), live=lambda s: Or(s == X, And(a.live(s), s != S)),
        counted=lambda s: Or(a.counted(s), s == X),
        generation=lambda s: If(s == X, history(X), a.generation(s)),
        promoted_at=lambda s: If(s == X, CLOCK, a.promoted_at(s)),
        taken=lambda s, r: If(s == X, Or(a.taken(S, r), r == registry(R), a.taken(R, r)),
                              a.taken(s, r)),
        took_over=lambda s: Or(a.took_over(s), s == X),
        old_end=lambda s, k: If(s == X, ENDS(k), a.old_end(s, k)),
        created=lambda s: If(s == X, created, a.created(s)),
        floor=lambda s: If(s == X, greatest(CLOCK, floor), a.floor(s)))


def take_over_lost(a, S=Server, LOST={'r': Bool}, CLOCK=Int):
    """take_over() on server {S} at {CLOCK}, of a registry that is lost"""
    # snowflake.take_over() with an incarnation alone.  Assumed: the registry never runs again, nor
    # any that it had taken over, and what they granted has ended.
    return And(
        a.live(S), Not(a.closed(S)), a.counted(S), only_server(a, S),
        every(lambda q: Implies(LOST(registry(q)), Not(a.live(q)))),
        every(lambda q, r: Implies(And(LOST(registry(q)), a.taken(q, r)), LOST(r))),
        Not(LOST(registry(S))),
        rule('what-is-lost-is-over', every(lambda l: Implies(
            And(granted(a, l), LOST(home(l))), a.may(l) <= CLOCK))),
    ), after(
        a, taken=lambda s, r: Or(a.taken(s, r), And(s == S, LOST(r))),
        took_over=lambda s: Or(a.took_over(s), s == S),
        floor=lambda s: If(And(s == S, kept('a-lost-registry-ends-at-the-clock')),
                           greatest(a.floor(S), CLOCK), a.floor(s)))


def opened_again(a, S, X, over, floor, created, ENDS):
    """The state after the closed own tables of S are opened again, as X, with a new incarnation."""
    return after(
        a,
        live=lambda s: Or(s == X, And(a.live(s), s != S)), ran=lambda s: Or(a.ran(s), s == X),
        made=lambda s: Or(a.made(s), s == X), counted=lambda s: Or(a.counted(s), s == X),
        closed=lambda s: And(a.closed(s), s != X),
        row=lambda s, l: And(a.row(s, l), Or(s != X, BoolVal(X is S))),
        generation=lambda s: If(s == X, history(X), a.generation(s)),
        last_call=lambda s, n: If(s == X, a.last_call(S, n), a.last_call(s, n)),
        promoted_at=lambda s: If(s == X, a.promoted_at(S), a.promoted_at(s)),
        created=lambda s: If(s == X, created, a.created(s)),
        floor=lambda s: If(s == X, floor, a.floor(s)),
        took_over=lambda s: Or(a.took_over(s), s == X),
        taken=lambda s, r: If(s == X, Or(a.taken(S, r), r == registry(S), over(r)), a.taken(s, r)),
        old_end=lambda s, k: If(s == X, ENDS(k), a.old_end(s, k)))


def take_over_again(a, S=Server, R=Server, X=Server, ENDS={'k': Int}):
    """take_over() on server {S}, which was closed, of the registry of server {R}"""
    # snowflake.take_over() in own tables: it opens them with a new incarnation, which is X here
    if not kept('own-tables-open-with-a-new-incarnation'):
        X = S
    fresh = And(
        history(S) <= history(X), is_next(a, X), place(X) == place(S),
        is_new(a, registry(X)),
        registry(X) != registry(S), registry(X) != registry(R))
    return And(
        a.live(S), a.closed(S), a.counted(S), only_server(a, S),
        registry(S) != registry(R), a.live(R), a.closed(R), a.taken(R, registry(S)),
        fresh if X is not S else True, has_parity_of(a, X, R),
        ends_of(a, S, ENDS), ends_of(a, R, ENDS),
    ), opened_again(a, S, X, lambda r: Or(r == registry(R), a.taken(R, r)),
                    *handed_on(a, S, R), ENDS)


def take_over_lost_again(a, S=Server, LOST={'r': Bool}, X=Server, ENDS={'k': Int}, CLOCK=Int):
    """take_over() on server {S}, which was closed, at {CLOCK}, of its successor, which is lost"""
    # snowflake.take_over() with an incarnation alone, in own tables.  Assumed as above.
    return And(
        a.live(S), a.closed(S), a.counted(S), only_server(a, S),
        every(lambda q: Implies(LOST(registry(q)), Not(a.live(q)))),
        every(lambda q, r: Implies(And(LOST(registry(q)), a.taken(q, r)),
                                   Or(LOST(r), r == registry(S)))),
        Not(LOST(registry(S))), Not(LOST(registry(X))),
        rule('what-is-lost-is-over', every(lambda l: Implies(
            And(granted(a, l), LOST(home(l))), a.may(l) <= CLOCK))),
        history(X) == history(S), is_next(a, X), place(X) == place(S),
        is_new(a, registry(X)), registry(X) != registry(S),
        ends_of(a, S, ENDS),
    ), opened_again(a, S, X, LOST, greatest(a.floor(S), CLOCK), a.created(S), ENDS)


def ids_end_before(a, S=Server, CLOCK=Int):
    """ids_end_before({CLOCK}) on server {S}"""
    # snowflake.ids_end_before(); the owner says that no id that is not in these tables ends later
    J = tables_of(S)
    earlier = lambda time: If(time > CLOCK, CLOCK, time)
    return And(
        a.live(S), only_server(a, S),
        rule('ids-end-when-the-owner-says', every(lambda l: Implies(
            Or(And(granted(a, l), Or(a.taken(S, home(l)),
                                     And(home(l) == registry(S), granter(l) != S))),
               And(a.opened(l), cluster(owner(l)) == J, Not(And(
                   home(l) == registry(S), a.uses_any(J), a.uses(J) == registry(S))))),
            a.may(l) <= CLOCK))),
    ), after(
        a, created=lambda s: If(s == S, earlier(a.created(S)), a.created(s)),
        floor=lambda s: If(s == S, earlier(a.floor(S)), a.floor(s)),
        promoted_at=lambda s: If(s == S, earlier(a.promoted_at(S)), a.promoted_at(s)),
        made_at=lambda j: If(j == J, earlier(a.made_at(J)), a.made_at(j)))


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
        Not(a.dead(N)), C == a.calls(N) + 1, asks(N, C), least_ahead <= said_ahead(N, C),
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
        Not(a.dead(N)), C == a.calls(N) + 1, Not(asks(N, C)), names(N, C), named_newest(a, N, C),
        rule('a-sealed-lease-is-not-renewed', Or(says_end(N, C), Not(a.sealed(named(N, C))))),
        said_what_is_used(a, N, C),
    ), after(
        a, calls=lambda n: If(n == N, C, a.calls(n)), out=lambda n: Or(a.out(n), n == N),
        may=without_result(a, N))


def take(a, L, known):
    """take_next() of machine.c: what a node knows when its newest lease is L."""
    N = owner(L)
    W = a.newest(N)
    parted = And(has(a, N, W), Not(is_akin(W, L)), kept('keep-the-end-when-the-registry-changes'))
    return dict(
        newest=lambda n: If(n == N, L, a.newest(n)),
        before=lambda n: If(And(n == N, parted), greatest(a.before(n), known), a.before(n)))


def opening(a, L, C, U):
    """What opening a lease demands, and the state after it."""
    N = owner(L)
    J = cluster(N)
    return And(
        a.result(L, C, U), Not(a.dead(N)), Not(a.opened(L)),
        rule('only-the-last-result-counts', counts(a, N, C)),
        # A1: a first use of another registry is an order, given on the cluster's only server
        rule('A1-a-first-use-is-an-order', Or(
            And(a.uses_any(J), a.uses(J) == home(L)),
            every(lambda n: Implies(And(cluster(n) == J, n != N),
                                    Or(a.dead(n), a.calls(n) == 0))))),
    ), after(
        a, out=lambda n: And(a.out(n), n != N), opened=lambda l: Or(a.opened(l), l == L),
        limit=lambda l: If(l == L, U, a.limit(l)),
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
        a.result(L, C, U), Not(a.dead(N)), Not(a.opened(L)), counts(a, N, C),
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
    ), after(a, out=lambda n: And(a.out(n), n != N), limit=lambda l: If(l == L, U, a.limit(l)),
             bit=lambda l: And(a.bit(l), l != L),
             may=without_result(a, N))


def issue(a, L=Lease, T=Tick):
    """node {owner(L)} issues an id: number {number(L)}, tick {begins(T)} to {ends(T)}"""
    # src/ids: the word is not sealed, and the tick is inside start and limit
    return And(
        a.opened(L), Not(a.dead(owner(L))),
        rule('a-sealed-word-issues-nothing', Not(a.bit(L))),
        rule('a-tick-begins-after-the-start', starts(L) <= begins(T)),
        rule('a-tick-ends-before-the-limit', ends(T) <= a.limit(L)),
    ), after(a, issued=lambda l, t: Or(a.issued(l, t), And(l == L, t == T)))


def sealing(a, L, U):
    """What sealing the words of a lease demands, and the state after it."""
    N = owner(L)
    return And(
        a.opened(L), Not(a.sealed(L)), Not(a.dead(N)), U <= greatest(starts(L), a.limit(L)),
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
    grant=grant, renew=renew, release=release, replicate=replicate, stop=stop, promote=promote,
    count=count, upgrade=upgrade, restore_rows=restore_rows, create=create, close=close,
    take_over=take_over, take_over_and_count=take_over_and_count, take_over_lost=take_over_lost, take_over_again=take_over_again,
    take_over_lost_again=take_over_lost_again,
    ids_end_before=ids_end_before, ask=ask, tell=tell, open=open_lease,
    change=change, drop=drop, extend=extend, issue=issue, seal=seal, crash=crash)
