package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// badConfigs has a row per way to be wrong. What is wanted is the whole
// message, with FILE for the file: line, column, key, value and reason.
var badConfigs = []struct{ name, doc, want string }{
	{"no TOML", "[book\n", "FILE:1:6: expected ']' to close table name"},
	{"no value", "[log]\nlevel =\n", "FILE:2:8: unexpected character U+000A at start of value"},
	{"key twice", "[log]\nlevel = 'info'\nlevel = 'warn'\n", "FILE:3:1: level: key level is already defined"},
	{"table twice", "[log]\n[log]\n", "FILE:2:2: log: table log already exists"},
	{"not UTF-8", "[log]\nlevel = '\xff'\n", "FILE:2:10: invalid UTF-8 character in literal string"},

	{"misspelt key", "[allocation]\ncoldown = '1m'\n", "FILE:2:1: allocation.coldown: there is no such key; did you mean allocation.cooldown?"},
	{"misspelt table", "[alocation]\ncooldown = '1m'\n", "FILE:1:2: alocation: there is no such key; did you mean allocation?"},
	{"misspelt pool", "[[pools]]\nname = 'a'\n", "FILE:1:3: pools: there is no such key; did you mean pool?"},
	{"key of another table", "[bridge]\nmax_conflicts = 3\n", "FILE:2:1: bridge.max_conflicts: there is no such key; did you mean allocation.max_conflicts?"},
	{"key outside its table", "max_conflicts = 3\n", "FILE:1:1: max_conflicts: there is no such key; did you mean allocation.max_conflicts?"},
	{"unheard-of key", "[log]\nverbosity = 3\n", "FILE:2:1: log.verbosity: there is no such key; known here: format, level"},
	{"other case", "[log]\nLevel = 'info'\n", "FILE:2:1: log.Level: there is no such key; did you mean log.level?"},
	{"key in a key", "[log]\nlevel.of = 3\n", "FILE:2:1: log.level.of: there is no such key; known here: "},
	{"dotted key in quotes", "'log.level' = 'info'\n", "FILE:1:1: log.level: unknown field"},
	{"misspelt key of a pool", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[[pool]]\nnme = 'b'\n", "FILE:5:1: pool.nme: there is no such key; did you mean pool.name?"},
	{"misspelt key of a route", "[[pool]]\nroutes = [{dest = '0.0.0.0/0'}]\n", "FILE:2:12: pool.routes.dest: there is no such key; known here: destination, via"},

	{"number for a duration", "[allocation]\ncooldown = 30\n", "FILE:2:1: allocation.cooldown: a duration in quotes, like '30m', is wanted, not a whole number"},
	{"duration without a unit", "[allocation]\ncooldown = '30'\n", `FILE:2:12: allocation.cooldown: "30" is no duration: write a number with its unit, like '90s', '30m' or '720h'`},
	{"string for a number", "[allocation]\nmax_conflicts = 'many'\n", "FILE:2:1: allocation.max_conflicts: a whole number is wanted, not a string"},
	{"fraction for a number", "[allocation]\nmax_conflicts = 3.5\n", "FILE:2:1: allocation.max_conflicts: a whole number is wanted, not a number with a fraction"},
	{"number for a string", "[socket]\nmode = 0o660\n", "FILE:2:1: socket.mode: a string in quotes is wanted, not a whole number"},
	{"string for a truth", "[bridge]\nmanage = 'yes'\n", "FILE:2:1: bridge.manage: true or false is wanted, not a string"},
	{"string for a share", "[allocation]\nquarantine_share = '25%'\n", "FILE:2:1: allocation.quarantine_share: a number is wanted, not a string"},
	{"string for a list", "[runtime]\nnamespaces = '*'\n", "FILE:2:1: runtime.namespaces: a list is wanted, not a string"},
	{"list of other things", "[runtime]\nnamespaces = [1]\n", "FILE:2:15: runtime.namespaces: cannot decode TOML integer into"},
	{"table for a pool", "[pool]\nname = 'a'\n", "FILE:1:2: pool: a list of tables is wanted, not a table"},
	{"list for a table", "[[log]]\nlevel = 'info'\n", "FILE:1:3: log: a table is wanted, not a list of tables"},
	{"date", "[log]\nlevel = 2026-11-21\n", "FILE:2:1: log.level: a string in quotes is wanted, not a date or time"},
	{"number too big", "[book]\nchanges_kept = 99999999999999999999\n", "FILE:2:16: decimal number is too large"},
	{"uid below 0", "[socket]\nruntime_uids = [-1]\n", "FILE:2:17: socket.runtime_uids: negative integer value -1"},

	{"relative book", "[book]\npath = 'book.db'\n", `FILE:2:1: book.path: "book.db" is no absolute path`},
	{"half durable", "[book]\nsynchronous = 'off'\n", `FILE:2:1: book.synchronous: "off" is none of: full, normal`},
	{"no history", "[book]\nchanges_kept = 0\n", "FILE:2:1: book.changes_kept: 0 is not above 0"},
	{"no time for history", "[book]\nchanges_kept_for = '0s'\n", "FILE:2:1: book.changes_kept_for: 0s is not above 0"},
	{"runner with spaces", "[book]\nrunner_uid = 'my runner'\n", `FILE:2:1: book.runner_uid: "my runner" is longer than 253 bytes, or has spaces or control characters`},

	{"relative socket", "[socket]\npath = ''\n", `FILE:2:1: socket.path: "" is no absolute path`},
	{"socket's path too long", "[socket]\npath = '/" + strings.Repeat("x", 107) + "'\n", "has 108 bytes, and a socket's path may have 107"},
	{"mode not octal", "[socket]\nmode = '0888'\n", `FILE:2:1: socket.mode: "0888" is no mode in octal, like '0660'`},
	{"mode with more bits", "[socket]\nmode = '4755'\n", `FILE:2:1: socket.mode: "4755" is no mode in octal, like '0660'`},
	{"uid of no user", "[socket]\nruntime_uids = [4294967295]\n", "FILE:2:1: socket.runtime_uids: 4294967295 stands for no user"},
	{"gid of no user", "[socket]\nruntime_gids = [4294967295]\n", "FILE:2:1: socket.runtime_gids: 4294967295 stands for no user"},
	{"no connections", "[socket]\nmax_connections = 0\n", "FILE:2:1: socket.max_connections: 0 is not from 1 to 65536"},
	{"no calls", "[socket]\nmax_in_flight = 0\n", "FILE:2:1: socket.max_in_flight: 0 is not from 1 to 65536"},
	{"rate below 0", "[socket]\nmax_rate = -1\n", "FILE:2:1: socket.max_rate: -1 is not from 0 to 65536"},
	{"readers' rate below 0", "[socket]\nmax_reader_rate = -1\n", "FILE:2:1: socket.max_reader_rate: -1 is not from 0 to 65536"},
	{"no time to answer", "[socket]\ndeadline = '-1s'\n", "FILE:2:1: socket.deadline: -1s is not above 0"},

	{"bridge name too long", "[bridge]\nname = 'a-bridge-with-a-name'\n", `FILE:2:1: bridge.name: "a-bridge-with-a-name" is no interface name`},
	{"bridge name is a path", "[bridge]\nname = '../x'\n", `FILE:2:1: bridge.name: "../x" is no interface name`},
	{"a pool's own bridge that is none", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nbridge = 'a/b'\n", `FILE:4:1: pool.bridge: "a/b" is no interface name`},
	{"tiny MTU", "[bridge]\nmtu = 10\n", "FILE:2:1: bridge.mtu: 10 is neither 0 nor from 68 to 65535 bytes"},
	{"MTU below IPv6's", "[bridge]\nmtu = 1000\n[[pool]]\nname = 'a'\nprefix = 'fd00::/64'\n", "FILE:2:1: bridge.mtu: 1000 bytes are too few for IPv6, which needs 1280"},
	{"never refreshed", "[bridge]\nrefresh = '0s'\n", "FILE:2:1: bridge.refresh: 0s is not above 0"},
	{"a netns folder that is relative", "[bridge]\nnetns = ['netns']\n", "FILE:2:1: bridge.netns: \"netns\" is no absolute path"},
	{"a netns folder that is not clean", "[bridge]\nnetns = ['/run/a/../b']\n", "FILE:2:1: bridge.netns: \"/run/a/../b\" is not clean: write /run/b"},

	{"no pool", "pool = []\n", "FILE:1:1: pool: there is none; without any [[pool]] there is the default one"},
	{"pool without a name", "[[pool]]\nprefix = '10.9.0.0/24'\n", `FILE: pool.name: "" is not 1 to 63 letters, digits, dots, dashes or underscores`},
	{"pool without a prefix", "[[pool]]\nname = 'a'\n", `FILE: pool.prefix: "" is no prefix, like 10.8.64.0/24`},
	{"address for a prefix", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0'\n", `FILE:3:1: pool.prefix: "10.9.0.0" is no prefix, like 10.8.64.0/24`},
	{"unmasked prefix (L7)", "[[pool]]\nname = 'a'\nprefix = '10.9.0.7/24'\n", "FILE:3:1: pool.prefix: 10.9.0.7/24 has host bits set; did you mean 10.9.0.0/24?"},
	{"mapped prefix", "[[pool]]\nname = 'a'\nprefix = '::ffff:10.9.0.0/120'\n", "FILE:3:1: pool.prefix: "},
	{"gateway elsewhere", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\ngateway = '10.8.64.1'\n", "FILE:4:1: pool.gateway: 10.8.64.1 is not in 10.9.0.0/24"},
	{"gateway is broadcast", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\ngateway = '10.9.0.255'\n", "FILE:4:1: pool.gateway: 10.9.0.255 is no host address of 10.9.0.0/24"},
	{"reservation of what is excluded", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nexclude = ['10.9.0.7']\n[[pool.reservation]]\nsandbox = 'db'\naddress = '10.9.0.7'\n",
		`FILE:5:3: pool.reservation: "db" cannot have 10.9.0.7: it is excluded (10.9.0.7)`},
	{"reservation twice", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nreservation = [{sandbox = 'db', address = '10.9.0.7'}, {sandbox = 'db', address = '10.9.0.8'}]\n",
		`FILE:4:1: pool.reservation: "db" has both 10.9.0.7 and 10.9.0.8`},
	{"reservation of no address", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[[pool.reservation]]\nsandbox = 'db'\n", `FILE:4:3: pool.reservation: "" is no address`},
	{"misspelt reservation", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[[pool.reservation]]\nsandox = 'db'\n", "FILE:5:1: pool.reservation.sandox: there is no such key; did you mean pool.reservation.sandbox?"},
	{"gateway is no address", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\ngateway = 'first'\n", `FILE:4:1: pool.gateway: "first" is no address`},
	{"a pool's exhaustion", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nexhausted = 'newest'\n", "FILE:4:1: pool.exhausted: "},
	{"a pool's MTU", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nmtu = 7\n", "FILE:4:1: pool.mtu: "},
	{"a pool's slots", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[pool.warm]\nsize = 5000\n", "FILE:5:1: pool.warm.size: 5000 is not 0 to 4096"},
	{"a pool's most slots", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[pool.warm]\nsize = 5\nmax = 4\n", "FILE:6:1: pool.warm.max: 4 is not from size, which is 5, to 4096"},
	{"a strategy that there is not", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[pool.warm]\nsize = 5\nstrategy = 'never'\n", "FILE:6:1: pool.warm.strategy: "},
	{"slots without a table", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nwarm = 8\n", "FILE:4:1: pool.warm: "},
	{"misspelt slots", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[pool.warm]\nsice = 5\n", "FILE:5:1: pool.warm.sice: there is no such key; did you mean pool.warm.size?"},
	{"a pool's cooldown", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\ncooldown = '-1s'\n", "FILE:4:1: pool.cooldown: "},
	{"a pool's least cooldown", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\ncooldown = '1m'\ncooldown_min = '2m'\n", "FILE:5:1: pool.cooldown_min: "},
	{"a pool's label", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nlabels = ['zone']\n", `FILE:4:1: pool.labels: "zone" is no label`},
	{"exclusion elsewhere", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nexclude = ['10.8.0.1']\n", "FILE:4:1: pool.exclude: 10.8.0.1 is not in 10.9.0.0/24"},
	{"exclusion backwards", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nexclude = ['10.9.0.9-10.9.0.1']\n", `FILE:4:1: pool.exclude: "10.9.0.9-10.9.0.1" is no range of addresses`},
	{"all excluded", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/30'\nexclude = ['10.9.0.2']\n", "FILE:3:1: pool.prefix: 10.9.0.0/30 has no address to give: its gateway and exclusions take all"},
	{"route across families", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nroutes = [{destination = 'fd00::/64', via = '10.9.0.1'}]\n", "FILE:4:1: pool.routes: fd00::/64 via 10.9.0.1: the families differ"},
	{"route to nowhere", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\nroutes = [{via = '10.9.0.1'}]\n", `FILE:4:1: pool.routes: "" is no prefix, like 10.8.64.0/24`},
	{"route in a table", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[[pool.routes]]\ndestination = '192.0.2.1/24'\nvia = '10.9.0.1'\n", "FILE:4:3: pool.routes: destination 192.0.2.1/24 is no masked prefix"},
	{"DNS by name", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\ndns = ['dns.example']\n", `FILE:4:1: pool.dns: "dns.example" is no address`},
	{"overlap", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[[pool]]\nname = 'b'\nprefix = '10.9.0.128/25'\n", "FILE:6:1: pool.prefix: 10.9.0.128/25 overlaps pool a, which has 10.9.0.0/24"},
	{"one name twice", "[[pool]]\nname = 'a'\nprefix = '10.9.0.0/24'\n[[pool]]\nname = 'a'\nprefix = '10.10.0.0/24'\n", `FILE:5:1: pool.name: "a" names two pools of one family, 10.9.0.0/24 and 10.10.0.0/24`},

	{"no cooldown", "[allocation]\ncooldown = '0s'\ncooldown_min = '1ns'\n", "FILE:2:1: allocation.cooldown: 0s is not above 0\nFILE:3:1: allocation.cooldown_min: 1ns is longer than allocation.cooldown, which is 0s"},
	{"least above full", "[allocation]\ncooldown = '1m'\n", "FILE: allocation.cooldown_min: 2m is longer than allocation.cooldown, which is 1m"},
	{"no least", "[allocation]\ncooldown_min = '0s'\n", "FILE:2:1: allocation.cooldown_min: 0s is not above 0"},
	{"other exhaustion", "[allocation]\nexhausted = 'lowest'\n", `FILE:2:1: allocation.exhausted: "lowest" is none of: oldest, strict`},
	{"bound never", "[allocation]\nbind_within = '25h'\n", "FILE:2:1: allocation.bind_within: 25h is more than 24h"},
	{"no conflict allowed", "[allocation]\nmax_conflicts = 0\n", "FILE:2:1: allocation.max_conflicts: 0 is not from 1 to 65536"},
	{"requires nothing", "[allocation]\nrequire = 'none'\n", `FILE:2:1: allocation.require: "none" is none of: kernel, all`},
	{"requires who is not there", "[allocation]\nrequire = 'all'\n[runtime]\nkind = 'none'\n", "FILE:2:1: allocation.require: all asks for the runtime's word too, and runtime.kind is none"},
	{"no quarantine", "[allocation]\nquarantine = '0s'\n", "FILE:2:1: allocation.quarantine: 0s is not above 0"},
	{"more than all", "[allocation]\nquarantine_share = 1.5\n", "FILE:2:1: allocation.quarantine_share: 1.5 is not above 0 and up to 1"},
	{"a share that is none", "[allocation]\nquarantine_share = nan\n", "FILE:2:1: allocation.quarantine_share: NaN is not above 0 and up to 1"},
	{"no tombstone", "[allocation]\ntombstone = '0s'\n", "FILE:2:1: allocation.tombstone: 0s is not above 0"},

	{"no window", "[probe]\nwindow = '0s'\n", "FILE:2:1: probe.window: 0s is not above 0"},
	{"nothing ahead", "[probe]\nahead = 0\n", "FILE:2:1: probe.ahead: 0 is not from 1 to 65536"},

	{"other runtime", "[runtime]\nkind = 'docker'\n", `FILE:2:1: runtime.kind: "docker" is none of: containerd, none`},
	{"relative runtime", "[runtime]\naddress = 'containerd.sock'\n", `FILE:2:1: runtime.address: "containerd.sock" is no absolute path`},
	{"no namespace", "[runtime]\nnamespaces = []\n", "FILE:2:1: runtime.namespaces: names none; ['*'] reads every one"},
	{"all and one", "[runtime]\nnamespaces = ['*', 'a']\n", "FILE:2:1: runtime.namespaces: '*' stands alone"},
	{"namespace is a path", "[runtime]\nnamespaces = ['a/b']\n", `FILE:2:1: runtime.namespaces: "a/b" is no containerd namespace`},
	{"no time for the runtime", "[runtime]\ntimeout = '0s'\n", "FILE:2:1: runtime.timeout: 0s is not above 0"},
	{"label without a name", "[runtime]\nowner_label = ''\n", "FILE:2:1: runtime.owner_label: a label's name has 1 to 4095 bytes, not 0"},
	{"uid label without a name", "[runtime]\nuid_label = ''\n", "FILE:2:1: runtime.uid_label: a label's name has 1 to 4095 bytes, not 0"},
	{"one label for two things", "[runtime]\nlease_label = 'x'\nowner_label = 'x'\n", `FILE:2:1: runtime.lease_label: "x" is runtime.owner_label already`},

	{"no time to confirm", "[watchdog]\ntimeout = '0s'\n", "FILE:2:1: watchdog.timeout: 0s is not above 0"},
	{"nothing at once", "[watchdog]\nparallel = 0\n", "FILE:2:1: watchdog.parallel: 0 is not from 1 to 65536"},
	{"never quarantined", "[watchdog]\nreleasing_max = '0s'\n", "FILE:2:1: watchdog.releasing_max: 0s is not above 0"},
	{"killed at once", "[watchdog]\nkill_wait = '0s'\n", "FILE:2:1: watchdog.kill_wait: 0s is not above 0"},
	{"orphans without an owner", "[watchdog]\nremove_orphans = true\n", "FILE:2:1: watchdog.remove_orphans: only an owner can call a running container an orphan, and owner.socket names none"},
	{"relative owner", "[owner]\nsocket = 'o.sock'\n", `FILE:2:1: owner.socket: "o.sock" is no absolute path`},
	{"owner of no containers", "[owner]\nsocket = '/o'\n[runtime]\nkind = 'none'\n", "FILE:2:1: owner.socket: its answers are about containers, and runtime.kind is none"},
	{"an owner that is no user", "[owner]\nuids = [4294967295]\n", "FILE:2:1: owner.uids: 4294967295 stands for no user"},
	{"no time for the owner", "[owner]\ntimeout = '0s'\n", "FILE:2:1: owner.timeout: 0s is not above 0"},
	{"owner never read", "[owner]\nevery = '0s'\n", "FILE:2:1: owner.every: 0s is not above 0"},
	{"no grace", "[owner]\ngrace = '0s'\n", "FILE:2:1: owner.grace: 0s is not above 0"},

	{"no miss", "[reconcile]\nmisses = 0\n", "FILE:2:1: reconcile.misses: 0 is not from 1 to 65536"},
	{"missed for no time", "[reconcile]\nage = '0s'\n", "FILE:2:1: reconcile.age: 0s is not above 0"},
	{"releases more than all", "[reconcile]\nmax_releases = 2\n", "FILE:2:1: reconcile.max_releases: 2 is not above 0 and up to 1"},
	{"releases a share that is none", "[reconcile]\nmax_releases = nan\n", "FILE:2:1: reconcile.max_releases: NaN is not above 0 and up to 1"},
	{"releases none", "[reconcile]\nleast_releases = 0\n", "FILE:2:1: reconcile.least_releases: 0 is not from 1 to 65536"},
	{"no time to wake", "[wake]\nwait = '0s'\n", "FILE:2:1: wake.wait: 0s is not from 100ms to 10m0s"},
	{"resumed by magic", "[wake]\nresumer = 'magic'\n", `FILE:2:1: wake.resumer: "magic" is none of: event, containerd, exec`},
	{"resumed by a runtime that is not there", "[wake]\nresumer = 'containerd'\n[runtime]\nkind = 'none'\n", "FILE:2:1: wake.resumer: containerd is to resume tasks, and runtime.kind is none"},
	{"no command", "[wake]\nresumer = 'exec'\n", "wake.command: exec wants a program, and none is named"},
	{"a command that nothing runs", "[wake]\ncommand = ['/bin/true']\n", `FILE:2:1: wake.command: nothing runs it: wake.resumer is "event", not exec`},
	{"relative command", "[wake]\nresumer = 'exec'\ncommand = ['true']\n", `FILE:3:1: wake.command: "true" is no absolute path`},
	{"idle at once", "[idle]\nafter = '1ms'\n", "FILE:2:1: idle.after: 1ms is neither 0s nor 1s or more"},
	{"a scraper by name", "[idle]\nignore = ['prometheus']\n", `FILE:2:1: idle.ignore: "prometheus" is no address or prefix`},
	{"a scraper with too many bits", "[idle]\nignore = ['10.8.64.9/24']\n", "FILE:2:1: idle.ignore: 10.8.64.9/24 has bits beyond its length: write 10.8.64.0/24"},
	{"never reconciled", "[reconcile]\nevery = '0s'\n", "FILE:2:1: reconcile.every: 0s is not above 0"},
	{"rules by halves", "[enforce]\nmode = 'on'\n", `FILE:2:1: enforce.mode: "on" is none of: off, observe, enforce`},
	{"a port without a name", "[enforce]\ntrusted = ['eth1', '']\n", `FILE:2:1: enforce.trusted: "" is no name of an interface, nor the begin of one with a * behind`},
	{"a port by a pattern", "[enforce]\ntrusted = ['eth*0']\n", `FILE:2:1: enforce.trusted: "eth*0" is no name of an interface, nor the begin of one with a * behind`},
	{"a port by its path", "[enforce]\ntrusted = ['/sys/class/net/eth1']\n", `FILE:2:1: enforce.trusted: "/sys/class/net/eth1" is no name of an interface, nor the begin of one with a * behind`},
	{"a port with too long a name", "[enforce]\ntrusted = ['uplink-of-rack-7']\n", `FILE:2:1: enforce.trusted: "uplink-of-rack-7" is longer than an interface's name, which has 15 bytes at most`},
	{"every port is trusted", "[enforce]\ntrusted = ['*']\n", `FILE:2:1: enforce.trusted: "*" is every port: say so by enforce.unleased = 'allow'`},
	{"a port that may do what", "[enforce]\nunleased = 'deny'\n", `FILE:2:1: enforce.unleased: "deny" is none of: allow, drop`},
	{"metrics on a name", "[metrics]\nlisten = 'localhost:9713'\n", `FILE:2:1: metrics.listen: "localhost:9713" is no address with a port, like '127.0.0.1:9713' or '[::1]:9713'`},
	{"metrics without a port", "[metrics]\nlisten = '10.0.0.7'\n", `FILE:2:1: metrics.listen: "10.0.0.7" is no address with a port`},
	{"metrics on no port", "[metrics]\nlisten = ':https'\n", `FILE:2:1: metrics.listen: ":https" has no port from 0 to 65535`},
	{"other level", "[log]\nlevel = 'trace'\n", `FILE:2:1: log.level: "trace" is none of: debug, info, warn, error`},
	{"other format", "[log]\nformat = 'xml'\n", `FILE:2:1: log.format: "xml" is none of: auto, text, json, journal`},

	{"all at once, in the order of the file", "[log]\nlevel = 'x'\n[book]\npath = 'y'\n",
		"FILE:2:1: log.level: \"x\" is none of: debug, info, warn, error\nFILE:4:1: book.path: \"y\" is no absolute path"},
}

func TestBadConfigs(t *testing.T) {
	for _, c := range badConfigs {
		t.Run(c.name, func(t *testing.T) {
			path := file(t, c.doc)
			_, err := Load(t.Context(), path)
			if err == nil {
				t.Fatal("accepted")
			}
			if got := strings.ReplaceAll(err.Error(), path, "FILE"); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestConfigThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                          dir + ": cannot be read: is a directory",
		filepath.Join(dir, "absent"): filepath.Join(dir, "absent") + ": cannot be read: no such file or directory",
	} {
		if _, err := Load(t.Context(), path); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestBadConfigsCoverEveryOption: each option has a row that refuses it.
// bridge.manage is a bool, and a socket's group is looked up at start.
func TestBadConfigsCoverEveryOption(t *testing.T) {
	doc, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, c := range badConfigs {
		all.WriteString(c.want + "\n")
	}
	for _, s := range outlineOf(doc) {
		if !strings.Contains(all.String(), " "+s.name+":") && s.name != "socket.group" && strings.Contains(s.name, ".") &&
			s.name != "runtime.address_label" && s.name != "socket.path" {
			t.Errorf("no row is about %s", s.name)
		}
	}
}
