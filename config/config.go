package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// A Config is everything an operator can decide. The comment tags are the
// options' documentation, and `ipamd config` prints them: what it means, its
// unit, what zero or an empty value does. An option that does not say what
// zero does refuses it.
type Config struct {
	Book       Book       `toml:"book" comment:"The lease book: one SQLite file."`
	Socket     Socket     `toml:"socket" comment:"The unix socket that runtimes and ipamctl speak to. Root may do everything."`
	Bridge     Bridge     `toml:"bridge" comment:"The Linux bridge that sandboxes are ports of."`
	Pools      []Pool     `toml:"pool" comment:"What addresses there are, a [[pool]] each. The first one serves requests that name\nnone. Two pools of one name, IPv4 and IPv6, serve dual-stack requests. A file without\nany has the one that is shown here."`
	Allocation Allocation `toml:"allocation" comment:"When an address may be given, and when again."`
	Probe      Probe      `toml:"probe" comment:"Asking the wire (ARP, neighbour solicitation) for the next candidates, ahead of demand."`
	Runtime    Runtime    `toml:"runtime" comment:"The container runtime, a witness of which sandboxes there are."`
	Watchdog   Watchdog   `toml:"watchdog" comment:"Confirming that a workload is gone before its address may be used again."`
	Owner      Owner      `toml:"owner" comment:"The owner oracle: what the sandbox runtime itself answers about its sandboxes. Only with\none can a running container be called an orphan."`
	Wake       Wake       `toml:"wake" comment:"Waking paused sandboxes."`
	Idle       Idle       `toml:"idle" comment:"Sandboxes without traffic. What counts is IP that passes the bridge to or from a lease's\naddress, but no ICMP and no IGMP."`
	Reconcile  Reconcile  `toml:"reconcile" comment:"Comparing book, wire and runtime."`
	Enforce    Enforce    `toml:"enforce" comment:"Rules of nftables, made from the book: a port may use the addresses of its leases, and no\nothers. FEATURES.md says how to go from off to enforce."`
	Metrics    Metrics    `toml:"metrics" comment:"Metrics over TCP, beside those on the socket."`
	Log        Log        `toml:"log" comment:"What ipamd writes to its standard error."`
}

type Book struct {
	Path           string   `toml:"path" comment:"Where it is, an absolute path. Its folder is made when it is missing."`
	Synchronous    string   `toml:"synchronous" comment:"full: an acknowledged lease survives power loss. normal: it survives kill -9 only."`
	ChangesKept    int      `toml:"changes_kept" comment:"How many changes the history keeps."`
	ChangesKeptFor Duration `toml:"changes_kept_for" comment:"And for how long. A change leaves by whichever comes first."`
	RunnerUID      string   `toml:"runner_uid" comment:"Names the runner that the book belongs to, up to 253 bytes. Empty: a new book gets a\ngenerated name, an old one keeps its own."`
}

type Socket struct {
	Path           string   `toml:"path" comment:"Where it is, an absolute path of at most 107 bytes."`
	Mode           string   `toml:"mode" comment:"Its permissions, in octal. A process that can open it can read."`
	Group          string   `toml:"group" comment:"Its group, by name or number. Empty: the daemon's own."`
	RuntimeUIDs    []uint32 `toml:"runtime_uids" comment:"Users, by number, that may change leases. Empty: root only."`
	RuntimeGIDs    []uint32 `toml:"runtime_gids" comment:"Groups, by number, whose members may. Empty: root only."`
	MaxConnections int      `toml:"max_connections" comment:"Open connections at once, at most half of the files that ipamd may open. Beyond that one\nwithout a call is closed, the longest idle one of the peer that has the most."`
	MaxInFlight    int      `toml:"max_in_flight" comment:"Calls of one peer under way, at most half of max_connections; a listing counts for 64, a\nbody for one more for each 64 KiB. A peer is a process, or a user that may only read."`
	MaxRate        int      `toml:"max_rate" comment:"Calls a second by a peer that may change leases. 0: no limit."`
	MaxReaderRate  int      `toml:"max_reader_rate" comment:"Calls a second by a peer that may only read. 0: no limit."`
	Deadline       Duration `toml:"deadline" comment:"Of every call. A release that is asked to wait gets its wait on top."`
}

type Bridge struct {
	Name    string   `toml:"name" comment:"Its name, 1 to 15 bytes."`
	Manage  bool     `toml:"manage" comment:"true: ipamd makes the bridge with its gateway addresses and repairs it. It takes\noff a gateway that it put there once no pool and no sandbox needs it, and no other address.\nUnder the shipped unit forwarding has to be on before: OPERATIONS.md, Configure.\nfalse: it is made elsewhere; ipamd refuses to allocate while it is not as the pools need it."`
	MTU     int      `toml:"mtu" comment:"In bytes, set when ipamd manages the bridge. 0: left alone."`
	Refresh Duration `toml:"refresh" comment:"Time between whole readings. Events keep what is known current; this is for lost ones."`
	Netns   []string `toml:"netns" comment:"Folders where a bind may name a network namespace, beside /run/netns and /proc/PID/ns/net,\nlike '/run/docker/netns'. Empty: no others."`
}

type Pool struct {
	Name    string   `toml:"name" comment:"1 to 63 letters, digits, dots, dashes or underscores."`
	Prefix  string   `toml:"prefix" comment:"The addresses, like 10.8.64.0/24 or fd00:8::/64."`
	Gateway string   `toml:"gateway" comment:"The host's own address on the bridge. Empty: the prefix's first host. none: there is none."`
	Bridge  string   `toml:"bridge" comment:"That its sandboxes are on, where it is another than bridge.name. Empty: that one."`
	Exclude []string `toml:"exclude" comment:"Addresses that are never given: '10.8.64.5', '10.8.64.200-10.8.64.250', '10.8.64.16/28'."`
	Routes  []Route  `toml:"routes,inline" comment:"Routes for the sandbox beside the one to its gateway:\n{destination = '192.0.2.0/24', via = '10.8.64.9'}."`
	DNS     []string `toml:"dns" comment:"Name servers for the sandbox. Empty: none are named."`
	Kept    []Kept   `toml:"reservation,inline" comment:"Fixed addresses, by the sandbox's name: kept for it while it is away, and given to it\nwithout a wish. {sandbox = 'db', address = '10.8.64.9'}, or a [[pool.reservation]] each."`

	Cooldown    Duration `toml:"cooldown" comment:"As allocation.cooldown, of this pool alone. 0s: that one."`
	CooldownMin Duration `toml:"cooldown_min" comment:"As allocation.cooldown_min, of this pool alone. 0s: that one."`
	Exhausted   string   `toml:"exhausted" comment:"As allocation.exhausted, of this pool alone. Empty: that one."`
	MTU         int      `toml:"mtu" comment:"In bytes, of the sandboxes' interfaces. 0: the bridge's."`
	Labels      []string `toml:"labels" comment:"Labels of the pool, like 'zone=a'. Empty: none."`

	Warm Warm `toml:"warm" comment:"Warm slots: namespaces with a port that are made before a sandbox asks for one. ipamd-warm\nmakes them; without it there are none."`
}

type Warm struct {
	Size     int    `toml:"size" comment:"How many are kept ready. Each has an address. 0: none."`
	Max      int    `toml:"max" comment:"How many there may be with those that are being made and taken down. 0: as many as size."`
	Strategy string `toml:"strategy" comment:"Of slots that were made by another spec than the pool has now. recreate, or empty: they are\nnever given, and made anew. on_replenish: they may be given, and only new ones are made by it."`
}

type Kept struct {
	Sandbox string `toml:"sandbox"`
	Address string `toml:"address"`
}

type Route struct {
	Destination string `toml:"destination"`
	Via         string `toml:"via"`
}

type Allocation struct {
	Cooldown        Duration `toml:"cooldown" comment:"How long an address cools after its workload's removal was confirmed."`
	CooldownMin     Duration `toml:"cooldown_min" comment:"When nothing else is left: never sooner than this. Connection tracking remembers a SYN\nfor two minutes."`
	Exhausted       string   `toml:"exhausted" comment:"oldest: a pool whose free addresses all cool gives the one released longest ago, after\ncooldown_min, and marks the reply. strict: it gives none."`
	BindWithin      Duration `toml:"bind_within" comment:"How long a lease may wait to be bound, unless its request says otherwise: an image pull\nfits. At most 24h."`
	MaxConflicts    int      `toml:"max_conflicts" comment:"How many addresses in use by strangers one request may meet before it is refused."`
	Require         string   `toml:"require" comment:"Which witnesses must answer. kernel: the kernel's. all: the runtime too."`
	Quarantine      Duration `toml:"quarantine" comment:"How long an address that a stranger used must not be seen before it cools."`
	QuarantineShare float64  `toml:"quarantine_share" comment:"How much of a pool may be quarantined without an operator, above 0 and up to 1; at least\none address, and at most 65536. What is seen beyond that is not given either."`
	Tombstone       Duration `toml:"tombstone" comment:"How long a cancelled attempt stays refused, should its allocate still come."`
}

type Probe struct {
	Window Duration `toml:"window" comment:"Silence after a probe that counts as an answer. A local container answers at once, a\nvirtual machine takes milliseconds."`
	Ahead  int      `toml:"ahead" comment:"How many candidates of each pool are probed ahead while none is asked for; under load more are."`
}

type Runtime struct {
	Kind         string   `toml:"kind" comment:"containerd, or none: only the kernel is asked."`
	Address      string   `toml:"address" comment:"containerd's socket, an absolute path."`
	Namespaces   []string `toml:"namespaces" comment:"containerd namespaces to read. ['*']: every one."`
	Timeout      Duration `toml:"timeout" comment:"Of each call to containerd."`
	OwnerLabel   string   `toml:"owner_label" comment:"The container label that names its sandbox."`
	AddressLabel string   `toml:"address_label" comment:"The one that holds its address; so does this with digits behind it."`
	LeaseLabel   string   `toml:"lease_label" comment:"The one that holds its lease id. A runtime that sets it makes repair exact."`
	UIDLabel     string   `toml:"uid_label" comment:"The one that holds the sandbox's uid, where that is not its name."`
}

type Watchdog struct {
	Timeout       Duration `toml:"timeout" comment:"Of one attempt to confirm a removal. An attempt that ends by it is made again."`
	Parallel      int      `toml:"parallel" comment:"How many attempts run at once."`
	ReleasingMax  Duration `toml:"releasing_max" comment:"How long an address may stay on the wire after its release, before it is quarantined;\nand how long a release may stay unconfirmed before the log warns of it.\nipamctl doctor reports it after 30s."`
	RemoveOrphans bool     `toml:"remove_orphans" comment:"true: the containers of a sandbox that its owner calls gone are ended and deleted.\nfalse: they are only reported. Either needs [owner]."`
	KillWait      Duration `toml:"kill_wait" comment:"How long an orphan has between SIGQUIT and SIGKILL."`
}

type Owner struct {
	Socket  string   `toml:"socket" comment:"The unix socket on which it answers HTTP, an absolute path. Empty: there is none."`
	UIDs    []uint32 `toml:"uids" comment:"Users, by number, beside root and ipamd's own, that may answer on it and own its folder."`
	Timeout Duration `toml:"timeout" comment:"Of each question. No answer in time means that the sandbox stays."`
	Every   Duration `toml:"every" comment:"Time between two readings of its list."`
	Grace   Duration `toml:"grace" comment:"How old a sandbox must be, and how long missing from the list, before it is asked for."`
}

type Wake struct {
	Resumer string   `toml:"resumer" comment:"Who resumes. event: the runtime, which follows /v1/watch and acknowledges. containerd: ipamd\nresumes the tasks of the lease's containers, and pauses them on request. exec: command."`
	Command []string `toml:"command" comment:"For exec: a program, an absolute path, and its first arguments. pause or resume and the lease's\nid follow; the environment has the rest. Exit 0: done. 69: the sandbox is gone. 77: not\nallowed. Any other is tried again until the deadline."`
	Wait    Duration `toml:"wait" comment:"How long a resume may take, unless the lease's own policy says otherwise. From 100ms to 10m."`
}

type Idle struct {
	After  Duration `toml:"after" comment:"How long a sandbox has no traffic until a change on /v1/watch says, once, that it is idle. 0s:\ntraffic is not looked at. At least 1s otherwise. A policy's repause_after needs it, too."`
	Ignore []string `toml:"ignore" comment:"Addresses and prefixes whose packets count for nothing, and wake no sandbox: those\nthat probe or scrape."`
}

type Reconcile struct {
	Every         Duration `toml:"every" comment:"Time between passes that nothing else asked for."`
	Misses        int      `toml:"misses" comment:"How many passes in a row must miss a bound lease's workload before the lease is released."`
	Age           Duration `toml:"age" comment:"And for how long."`
	MaxReleases   float64  `toml:"max_releases" comment:"How much of all open leases one pass may release, above 0 and up to 1. One that would\nrelease more releases none, and waits for ipamctl reconcile --confirm."`
	LeastReleases int      `toml:"least_releases" comment:"A pass may release this many however few leases are open."`
}

type Enforce struct {
	Mode     string   `toml:"mode" comment:"off: the kernel has no table of ours. observe: packets that enforce would drop are counted.\nenforce: they are dropped."`
	Unleased string   `toml:"unleased" comment:"Ports of the bridge without a lease. allow: they may use what is no lease's and no gateway's.\ndrop: they may send nothing. A sandbox can send from its bind on; an uplink has to be trusted."`
	Trusted  []string `toml:"trusted" comment:"Ports that unleased = 'drop' is not for, such as an uplink or the bridge's way to VMs: names of\ninterfaces of the host, 'uplink*' for all that begin so. They may use what is no lease's and no\ngateway's. One that holds a lease is held to it like any other, but until its bind it is\ntrusted: use no pattern that matches ports of sandboxes."`
}

type Log struct {
	Level  string `toml:"level" comment:"debug, info, warn or error: this level and more severe ones."`
	Format string `toml:"format" comment:"auto: coloured on a terminal, journal under systemd, else text. text: key=value lines with\nthe time. json: an object a line. journal: lines with systemd's priorities, without the time."`
}

// Default is every default, and the only place that knows one.
func Default() Config {
	return Config{
		Book: Book{
			Path:           "/var/lib/ipamd/book.db",
			Synchronous:    "full",
			ChangesKept:    100_000,
			ChangesKeptFor: Duration(30 * 24 * time.Hour),
		},
		Socket: Socket{
			Path:           api.DefaultSocket,
			Mode:           "0660",
			Group:          "ipamd",
			RuntimeUIDs:    []uint32{},
			RuntimeGIDs:    []uint32{},
			MaxConnections: 1024,
			MaxInFlight:    512,
			MaxRate:        10_000,
			MaxReaderRate:  1000,
			Deadline:       Duration(10 * time.Second),
		},
		Bridge: Bridge{
			Name:    "rt0",
			MTU:     1500,
			Refresh: Duration(30 * time.Second),
			Netns:   []string{},
		},
		Pools: []Pool{{
			Name:    "default",
			Prefix:  "10.8.64.0/24",
			Exclude: []string{},
			Routes:  []Route{},
			DNS:     []string{},
			Kept:    []Kept{},
			Labels:  []string{},
		}},
		Allocation: Allocation{
			Cooldown:        Duration(30 * time.Minute),
			CooldownMin:     Duration(2 * time.Minute),
			Exhausted:       "oldest",
			BindWithin:      Duration(10 * time.Minute),
			MaxConflicts:    32,
			Require:         "kernel",
			Quarantine:      Duration(15 * time.Minute),
			QuarantineShare: 0.25,
			Tombstone:       Duration(time.Hour),
		},
		Probe: Probe{
			Window: Duration(50 * time.Millisecond),
			Ahead:  16,
		},
		Runtime: Runtime{
			Kind:         "containerd",
			Address:      "/run/containerd/containerd.sock",
			Namespaces:   []string{"*"},
			Timeout:      Duration(5 * time.Second),
			OwnerLabel:   "runtime.computer/entity-id",
			AddressLabel: "runtime.computer/ip",
			LeaseLabel:   "ipamd.dev/lease-id",
			UIDLabel:     "ipamd.dev/sandbox-uid",
		},
		Watchdog: Watchdog{
			Timeout:      Duration(5 * time.Second),
			Parallel:     16,
			ReleasingMax: Duration(time.Hour),
			KillWait:     Duration(5 * time.Second),
		},
		Owner: Owner{
			UIDs:    []uint32{},
			Timeout: Duration(2 * time.Second),
			Every:   Duration(30 * time.Second),
			Grace:   Duration(3 * time.Minute),
		},
		Wake: Wake{
			Resumer: "event",
			Command: []string{},
			Wait:    Duration(30 * time.Second),
		},
		Idle: Idle{
			Ignore: []string{},
		},
		Reconcile: Reconcile{
			Every:         Duration(5 * time.Minute),
			Misses:        3,
			Age:           Duration(15 * time.Minute),
			MaxReleases:   0.10,
			LeastReleases: 5,
		},
		Enforce: Enforce{
			Mode:     "off",
			Unleased: "allow",
			Trusted:  []string{},
		},
		Log: Log{
			Level:  "info",
			Format: "auto",
		},
	}
}

// Development is the defaults with a book, a socket and a bridge of its own, for a daemon to
// try things with; dir has the files. Without a containerd only the kernel is asked.
func Development(dir string) (Config, error) {
	c := Default()
	c.Book.Path = filepath.Join(dir, "book.db")
	c.Socket.Path = filepath.Join(dir, "ipamd.sock")
	c.Socket.Group = ""
	c.Bridge.Manage = true
	if _, err := os.Stat(c.Runtime.Address); err != nil {
		c.Runtime.Kind = "none"
	}
	return c, c.Check()
}

// BookOptions is how the book is opened.
func (c Config) BookOptions() netdb.Options {
	return netdb.Options{
		Synchronous:     c.Book.Synchronous,
		RunnerUID:       c.Book.RunnerUID,
		QuarantineShare: c.Allocation.QuarantineShare,
		Tombstone:       time.Duration(c.Allocation.Tombstone),
		KeepChanges:     c.Book.ChangesKept,
		KeepFor:         time.Duration(c.Book.ChangesKeptFor),
	}
}

// SlotProfile is the part of a warm slot's plumbing that is the same for all pools and bridges.
func (c Config) SlotProfile() ipam.Profile {
	return ipam.Profile{Enforce: c.Enforce.Mode, Wake: c.Wake.Resumer}
}

// Policy is when cooling addresses may be given again.
func (a Allocation) Policy() ipam.Policy {
	return ipam.Policy{Cooldown: time.Duration(a.Cooldown), CooldownMin: time.Duration(a.CooldownMin), Strict: a.Exhausted == "strict"}
}

// RequireAll says that an address is given only while every witness answers, the runtime too.
func (a Allocation) RequireAll() bool { return a.Require == "all" }

const configHeader = `# The configuration of ipamd, with every option and its meaning. Unknown keys are
# refused. A duration is a number with its unit, like '90s', '30m' or '720h'.

`

// Write prints the configuration as TOML with a comment on every option.
// Loading it again gives the same.
func (c Config) Write(w io.Writer) error {
	if _, err := io.WriteString(w, configHeader); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if err := toml.NewEncoder(w).Encode(c); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// A Duration is spelled as Go does it, "30m", without the zero units.
type Duration time.Duration

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is no duration: write a number with its unit, like '90s', '30m' or '720h'", text)
	}
	*d = Duration(parsed)
	return nil
}
