package layout

// A room is a package, or with "/..." all packages below it.
type room struct {
	path string
	may  []string // import of ours, in code that is not a test
	why  string
}

// rooms has every package of ours. A new one needs its line.
var rooms = []room{
	{"migrations", nil, "the schema is text; what it means is netdb's to know"},
	{"ipam", []string{"internal/elapsed", "internal/ranges"}, "values: what a lease, a pool or a refusal is does not depend on who stores, shows or acts on it"},
	{"netdb/bookfile", nil, "it keeps files: what is in a book, and whether it may be opened, is decided above it"},
	{"netdb/sqlite", []string{"migrations", "netdb/bookfile"}, "it has a file open: what its rows mean is decided above it"},
	{"netdb/group", nil, "it brings callers together: what they do, and where, is given to it"},
	{"netdb/free", []string{"internal/ranges"}, "it has ranges of addresses: why one is free, and who gets it, is decided above it"},
	{"netdb/index", []string{"ipam", "netdb/free", "internal/ranges"}, "rows and what follows from them: when they changed, and what the time is, is decided above it"},
	{"netdb", []string{"ipam", "migrations", "netdb/bookfile", "netdb/group", "netdb/index", "netdb/sqlite", "internal/elapsed", "internal/ranges"}, "the book is right whatever the wire, the runtime and the socket say: it cannot ask them"},
	{"netdb/salvage", []string{"ipam", "netdb", "netdb/bookfile", "netdb/sqlite"}, "it reads files that are no book of ours any more: the book itself never does"},
	{"census", []string{"internal/broadcast"}, "witnesses post here and those that decide read here, so it can depend on neither"},
	{"workload", []string{"ipam", "census"}, "what belongs to a lease is decided by values alone: every room that acts asks it, and it asks none"},
	{"bridge/rtnl", nil, "messages and answers; what they mean for an address is decided above it"},
	{"bridge/probe", []string{"bridge/rtnl", "internal/icmp6"}, "questions and answers; whose an address is, is decided above it"},
	{"bridge/nspath", []string{"internal/nsthread"}, "it opens what is at a path; which paths are asked about is decided above it"},
	{"bridge/remains", []string{"census", "bridge/nspath", "bridge/rtnl", "internal/share"}, "it reports what is left beside the bridges; whose that is, is decided by workload"},
	{"bridge", []string{"census", "bridge/nspath", "bridge/probe", "bridge/remains", "bridge/rtnl", "internal/broadcast", "internal/nsthread", "internal/peercred", "internal/share"}, "the kernel's side knows nothing of leases: it reports, others decide"},
	{"nft", nil, "it keeps tables as they are described; what rules are for is decided above it"},
	{"enforce", []string{"census", "ipam", "nft", "workload", "internal/broadcast", "internal/icmp6"}, "rules follow from the book and the ports: who changes either wakes it, and it changes neither"},
	{"watchdog", []string{"ipam", "census", "workload", "internal/broadcast", "internal/share"}, "it decides by what witnesses said, and speaks to no kernel and no runtime itself"},
	{"watchdog/ctrd", []string{"watchdog", "census", "internal/broadcast"}, "a witness has no hand on the book: the predecessor's cleanup had, and freed what it misread"},
	{"watchdog/owner", []string{"watchdog", "internal/peercred"}, "it brings the owner's word, and decides nothing by it"},
	{"wake", []string{"ipam", "internal/broadcast", "internal/share"}, "it orders wakes by the book: who resumes, and what is seen of traffic, is given to it"},
	{"wake/tasks", []string{"ipam", "wake", "watchdog", "workload"}, "it turns tasks as it is asked, and does not know why"},
	{"wake/hook", []string{"ipam", "wake"}, "it runs what an operator configured, and knows nothing of sandboxes"},
	{"wake/idle", []string{"ipam", "nft", "internal/broadcast"}, "it sees that packets pass, and says who had none: what becomes of that is decided above it"},
	{"warm", []string{"allocator", "api", "census", "ipam", "plumb", "watchdog", "workload", "internal/broadcast"}, "it decides by the book, and by what is seen in a namespace before that goes: what makes namespaces, and who takes work there, is given to it"},
	{"wake/catch", []string{"ipam", "nft", "workload", "internal/broadcast"}, "it sees packets, and asks for a wake: what becomes of it is decided above it"},
	{"orphans", []string{"ipam", "census", "workload", "watchdog", "internal/broadcast"}, "it ends containers on their owner's word; that their addresses come free is the watchdog's to confirm"},
	{"allocator", []string{"ipam", "netdb", "census", "workload", "internal/broadcast"}, "it hands out by book and board; who fills the board is not its business"},
	{"allocation", []string{"allocator", "ipam"}, "it waits and tries again: whose address it is the allocator decides, and what slots do the keeper"},
	{"reconciler", []string{"ipam", "census", "workload", "internal/broadcast"}, "it compares readings, it does not take them"},
	{"binding", []string{"allocator", "bridge", "census", "ipam", "netdb", "reconciler", "workload"}, "it adds to the book's verbs what the kernel knows of names; what follows from that is decided elsewhere"},
	{"plumb/helper", []string{"api", "plumb", "internal/broadcast", "internal/share"}, "it does what it is asked on the socket, and knows nothing else of the daemon"},
	{"attach", []string{"internal/broadcast"}, "it passes work on, whatever that is, and remembers none"},
	{"plumb", []string{"api", "internal/icmp6", "internal/nsthread"}, "it makes what a spec describes: any program can, with the rights and without the daemon"},
	{"gateways", []string{"bridge", "ipam"}, "what bridges have to be follows from the pools; what is done on them, bridge does"},
	{"readiness", []string{"allocator", "bridge", "census", "ipam", "netdb"}, "it asks what has to be there before an address is given, and gives none"},
	{"adoption", []string{"api", "census", "ipam", "netdb", "workload"}, "it says whose a book becomes; what follows from that, the passes do"},
	{"doctor", []string{"allocator", "api", "bridge", "census", "config", "config/reload", "enforce", "ipam", "netdb", "orphans", "reconciler", "watchdog"}, "it reads what rooms know and says what is wrong: no room depends on being examined"},
	{"feed", []string{"ipam", "internal/broadcast"}, "it passes on what is durable, and decides nothing"},
	{"api", nil, "what is said on the socket belongs to both ends"},
	{"server/socket", []string{"internal/broadcast", "internal/peercred"}, "it brings callers, and reads nothing that they send"},
	{"server/admission", []string{"api", "server/socket", "internal/peercred", "internal/share"}, "it counts what peers use, and reads no request"},
	{"server", []string{"api", "allocator", "attach", "census", "feed", "ipam", "netdb", "server/admission", "watchdog", "workload", "internal/nearest", "internal/ranges", "internal/share"},
		"decode, one call, encode: neither the kernel nor the runtime is asked on behalf of a socket"},
	{"routes", []string{"api", "client", "internal/broadcast"}, "a gateway imports it, and must not get the daemon with it"},
	{"client/answer", []string{"api"}, "what an answer means does not depend on how it came"},
	{"client", []string{"api", "client/answer"}, "a sandbox runtime imports it, and must not get the daemon with it"},
	{"config", []string{"api", "ipam", "netdb", "netdb/bookfile", "internal/nearest", "internal/ranges"}, "options are values: what acts on them is given them, and knows no file"},
	{"config/reload", []string{"config", "internal/logging", "internal/supervisor", "ipam"}, "it has the book take over what a file says; what follows from that, the rooms read in the book"},
	{"metrics", []string{"allocator", "api", "bridge", "census", "enforce", "ipam", "netdb", "reconciler", "server", "wake", "wake/catch", "wake/idle", "warm", "watchdog"}, "it counts what rooms did and reads what they know: no room depends on being counted"},
	{"rebuild", []string{"census", "config", "ipam", "netdb", "netdb/bookfile", "netdb/salvage", "reconciler", "workload"}, "it fills a book as a first pass does: kernel and runtime are opened for it"},
	{"docker", []string{"api", "client", "server/socket", "internal/ranges"}, "other people's protocol, on a socket of its own: it asks the daemon as any client does"},
	{"cmd/ipamd", []string{"adoption", "allocation", "allocator", "api", "binding", "bridge", "census", "client", "config", "config/reload", "docker", "doctor", "enforce", "gateways", "metrics", "migrations", "ipam", "netdb", "orphans", "plumb/helper", "readiness", "rebuild", "reconciler", "server", "server/admission", "server/socket", "wake", "wake/catch", "wake/hook", "wake/idle", "wake/tasks", "warm", "watchdog",
		"watchdog/ctrd", "watchdog/owner", "internal/build", "internal/changelog", "internal/cli", "internal/devnet", "internal/logging", "internal/supervisor", "internal/term", "internal/upkeep"}, "the one place that knows all rooms"},
	{"docs", nil, "it is text"},
	{"cmd/ipamctl", []string{"api", "client", "docs", "routes", "internal/build", "internal/cli", "internal/holding", "internal/nearest", "internal/poolfile", "internal/poolmap", "internal/ranges", "internal/term"}, "a person can do what any client can, by the same way"},
	{"cmd/ipamd-cni", []string{"api", "bridge/rtnl", "client/answer", "plumb", "internal/build", "internal/nsthread", "internal/ranges"}, "other people's protocol: it asks the daemon as any client does, and the kernel for the one port that it answers for"},
	{"examples/owner", nil, "it is asked by ipamd, and knows nothing of it"},
	{"examples/gateway", []string{"client", "routes"}, "it is what a gateway imports, shown"},
	{"examples/sandbox", []string{"api", "client", "plumb"}, "the same: a runtime makes its ports as CNI does"},
	{"examples/...", []string{"api", "client"}, "an example may use what an integrator may"},
	{"packaging", nil, "it is a test and nothing else, of what the Makefile builds"},
	{"soak", nil, "the same as the storm: a test of the programs"},
	{"systemd", nil, "units are text; its tests speak to what is installed"},
	{"storm", nil, "it is a test and nothing else, and what it tests are the programs"},

	{"internal/cli", nil, "it knows that there are verbs, and not which"},
	{"internal/manual", nil, "it writes down what a command line says of itself, whichever that is"},
	{"internal/term", nil, "it writes what it is given, whatever that is about"},
	{"internal/poolfile", []string{"api"}, "it reads what the socket takes, and sends nothing"},
	{"internal/poolmap", []string{"api", "internal/ranges", "internal/term"}, "it draws what the socket says, and asks nothing"},
	{"internal/holding", []string{"api"}, "it reads what the socket says, and asks nothing"},
	{"internal/ranges", nil, "it counts and cuts addresses, and knows nothing of whose they are"},
	{"internal/elapsed", nil, "it reads clocks, and knows nothing of what is dated by them"},
	{"internal/nearest", nil, "it knows names, not what they name"},
	{"internal/build", nil, "one version, of all programs and of the package"},
	{"internal/logging", nil, "it writes lines, and knows nothing of what they are about"},
	{"internal/changelog", []string{"census", "ipam", "netdb"}, "it reads what is durable: no room waits for it"},
	{"internal/devnet", nil, "it starts a program over, whichever that is"},
	{"internal/upkeep", []string{"netdb"}, "it has the book repaired, and knows not how"},
	{"internal/supervisor", []string{"internal/broadcast"}, "it asks parts that it is given, and knows none of them"},
	{"internal/layout", nil, "it reads the house from outside"},
	{"internal/realtest", nil, "every room's tests use it"},
	{"internal/doctest", []string{"internal/realtest"}, "it reads documents, and knows nothing of what they are about"},
	{"internal/apidoc", nil, "it checks a document against the wire types, in tests"},
	{"internal/nstest", []string{"internal/realtest"}, "it makes the kernel's parts with no room's help, so that it can test any"},
	{"internal/ctrdtest", []string{"internal/realtest"}, "the same for containerd's"},
	{"internal/broadcast", nil, "it wakes all that wait, and knows nothing of what for"},
	{"internal/icmp6", nil, "it computes, and sends nothing"},
	{"internal/nsthread", nil, "it takes a thread to a namespace and back, and knows nothing of what is done there"},
	{"internal/peercred", nil, "it says who a peer is; what that one may, is decided above it"},
	{"internal/share", nil, "it does what it is given, once for all that wait, or one at a time"},
	{"internal/faultfs", []string{"internal/realtest"}, "a disk knows nothing of what is written on it"},
	{"internal/ownertest", []string{"internal/realtest"}, "the same for the owner's: it runs the program, and imports none of it"},
	{"ipam/ipamtest", []string{"ipam"}, "leases for tests of rooms that have no book"},
	{"netdb/netdbtest", []string{"ipam", "netdb"}, "books for tests"},
	{"server/servertest", []string{"allocator", "api", "census", "ipam", "netdb", "internal/logging", "netdb/netdbtest", "server", "server/admission", "server/socket", "wake", "watchdog", "workload"}, "servers for tests"},
}

// A restricted library may be imported by few rooms only.
type restricted struct {
	library string // and all below it
	only    []string
	why     string
}

var restrictedLibraries = []restricted{
	{"modernc.org/sqlite", []string{"netdb/sqlite"}, "one package opens the book, and how is known there"},
	{"database/sql", []string{"netdb", "netdb/sqlite", "netdb/salvage", "netdb/netdbtest", "examples/..."}, "a room that has it can open the book without netdb"},
	{"github.com/containerd", []string{"watchdog/ctrd", "internal/ctrdtest", "examples/..."},
		"one package speaks containerd, and the rest is built and tested without it"},
	{"github.com/containernetworking", []string{"cmd/ipamd-cni"}, "the daemon knows leases, and no protocol of others"},
	{"github.com/vishvananda", []string{"bridge", "docker", "plumb", "internal/nstest", "internal/ctrdtest", "examples/..."}, "one package asks the kernel about links and addresses, one makes those of a sandbox, and one reads the host's routes"},
	{"github.com/mdlayher", []string{"bridge/rtnl", "nft", "wake/catch"}, "the same, and its raw messages want one pair of eyes"},
	{"github.com/google/nftables", []string{"nft", "storm"}, "one package speaks nftables: its sets are numbered in one place; the storm reads what came of it"},
	{"github.com/hanwen/go-fuse", []string{"internal/faultfs"}, "a file system is made to fail in tests, and nowhere else"},
	{"github.com/prometheus/procfs", []string{"watchdog/ctrd"}, "what is read of a process is read with its container"},
	{"github.com/prometheus/client_golang", []string{"metrics"}, "a collector belongs to a daemon, not to a package: two in one test must not collide"},
	{"github.com/pelletier/go-toml", []string{"config", "internal/poolfile"}, "defaults and options are known in one place; a file of pools is no configuration"},
	{"github.com/spf13/cobra", []string{"cmd/ipamd", "cmd/ipamctl", "examples/...", "internal/cli", "internal/manual"}, "command lines are for programs"},
	{"os/exec", []string{"wake/hook", "internal/doctest", "internal/realtest", "internal/nstest", "internal/ctrdtest", "internal/ownertest", "internal/faultfs", "examples/..."},
		"a daemon that starts programs inherits their failures; the kernel and containerd have APIs"},
}

// A forbidden import is what a package must not link, however indirectly.
type forbidden struct {
	from    string
	without []string // libraries and all below them, or rooms; empty: nothing but rooms it may import and the standard library
	why     string
}

var forbiddenImports = []forbidden{
	{"api", nil, "any program can import what is said on the socket"},
	{"client", nil, "a runtime that imports it takes on no dependency"},
	{"cmd/ipamctl", []string{"modernc.org", "github.com/vishvananda", "github.com/mdlayher", "github.com/google/nftables",
		"github.com/containerd", "google.golang.org/grpc"}, "it is a hand on the socket, copied to machines and into images as one small file"},
	{"cmd/ipamd-cni", []string{"modernc.org", "github.com/google/nftables", "github.com/containerd/containerd", "google.golang.org/grpc", "net/http", "crypto/tls"},
		"it is started for every container: each package that it links is paid for then"},
	{"ipam", []string{"modernc.org"}, "a value is read and made without a book"},
	{"workload", []string{"modernc.org"}, "what belongs to a lease is decided by values alone"},
	{"watchdog", []string{"modernc.org"}, "a book is what it is given, and its decisions are built without one"},
	{"reconciler", []string{"modernc.org"}, "the same"},
	{"allocator", []string{"github.com/vishvananda", "github.com/mdlayher", "github.com/containerd"}, "its tests need neither a kernel nor a runtime"},
	{"server", []string{"github.com/vishvananda", "github.com/mdlayher", "github.com/containerd"}, "the same"},
	{"cmd/ipamd", []string{"testing", "ipam/ipamtest", "netdb/netdbtest", "server/servertest", "internal/realtest", "internal/doctest", "internal/nstest", "internal/ctrdtest", "internal/ownertest", "internal/faultfs"},
		"what makes tests is no part of a daemon"},
	{"cmd/ipamctl", []string{"testing", "internal/realtest"}, "nor of a tool"},
}
