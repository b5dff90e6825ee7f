// Package storm is a test: one runner with faults of every kind, everything real.
//
// A network namespace holds rt0 with 80 more namespaces as its ports, ten of them with a
// container of a real containerd inside; with -storm.alone they are 200, and twenty. ipamd runs as
// the program that is shipped, in a process of its own. As many actors
// allocate, plug, bind, live and release, and most of them err at times: they
// never release, release twice or late, die between two steps, delete the
// namespace under everything, lose an answer and ask again. Strangers add
// addresses by hand that no lease gives them, and flooders ask for the gateway from
// ever new MACs. Meanwhile ipamd and containerd are killed with -9
// and started again, and the clock triple is stepped; the book's files are moved away
// under ipamd and back, and another ipamd is started on the book by a link. Hostile
// guests have addresses that do not stand still, hundreds of links, 64 KiB of names of
// one, ARP that claims what others have or is none, and a tap that two incarnations
// are bound to; hostile tenants label records without a task with others' owners and
// addresses, with hundreds of addresses, or with none, or make records of megabytes.
// Readers ask for what costs much by 64 calls at once, and read listings slowly;
// runtimes take leases with labels as large as can be, cancel what never was, bind
// leases to others' containers and to what is no namespace, or hangs. The owner lies,
// and another user listens in its place. Guests, readers and runtimes that work without
// a pause are processes with half a processor together, by a cgroup.
//
// The rules are enforced. Each sandbox that was bound sends what is its own and what is not, in
// frames of the test's making, to a port that writes down which of them are received; another
// program flushes the ruleset or deletes one element, and nft reads at times what the
// kernel has, and once more whenever an address begins to cool. Two more judges look for a frame
// of another's address that was received while no other program had taken rules away, for an
// own one that never was, for a bound sandbox with other rules than its own, and for
// rules of an address that is cooling.
//
// Every request and reply is written down with its times, and so is every
// address from when it is surely set to when its removal begins. A pure
// function, judge, then looks for faults: two owners of an address at an
// instant, an address given while a sandbox lives on it, an acknowledged lease
// that the book has lost, a reuse before its cooldown. The book's own history
// is judged by the same rules on its own stamps. Each rule has a test that
// shows what it finds.
//
// At the end the population is counted three times, by the book, by the kernel
// and by containerd. While it stands still the attacks come one by one, and beside each
// an allocation takes no more than three times as long as without it; then all come at
// once: no sandbox that lives is moved, no process ends, and nothing that ipamd says names
// an innocent port. Then all go, and beside the attacks each release ends within ten
// seconds of the removal, and nothing may be left: no lease, no port, no container, and
// the doctor has nothing to say. At no time had ipamd more memory than its unit allows.
//
// # What is stepped
//
// Only ipamd's own view of time, and only between a kill and a start: the
// machine's clocks stay. CLOCK_BOOTTIME is moved forward and backward by a time
// namespace, which may shorten no rest within a boot. A reboot is another boot id, mounted over
// the kernel's in a mount namespace, with an uptime of a few seconds. The wall
// clock has no such namespace, so the wall's part of every stamp in the book is
// moved instead: what ipamd finds is a book that was written by a clock which
// has been stepped since.
//
// # One order that explains every answer
//
// TestL1Linearizable is the same in small: no containers, nothing on the wire,
// one pool that is smaller than what 64 callers ask for, and ipamd killed
// every second or two, every other time by the caller that it has just
// answered. Its files are moved away and back meanwhile, other ipamds are started
// on its book, its uptime is stepped between a kill and a start, and in one of the
// runs new neighbours flood the bridge. A change that was refused for want of the
// files was not made, but for those that were under way as the files went; and
// without the book or its log nothing is acknowledged. Every try is written down, also those that were refused and those
// whose answer was lost, and so is every list of the book. Each address and
// each sandbox is given to a linearizability checker (porcupine) with the
// rules of the book: one owner, a rest after it, the same lease for an owner that
// asks again. A lease that no answer made was made by a call without one, before
// the first answer that shows it. Another judge says in words what is wrong,
// and the book's own history is judged as above. A refusal of an
// exhausted pool is wrong when fewer addresses than it has can have been taken
// or resting at the time, each for as long as nothing shows the contrary; that
// this can be judged, the trial counts the addresses given when there surely was
// room. What the judges refuse is left in a folder, the calls, a drawing and the
// book, named with the seed. At the end the pool is filled to its last
// address. A trial with too few kills, lost answers, lists or reuses goes on,
// on a machine that is slow, and is red when they do not come.
//
// TestL6Linearizable has its callers share fifty sandboxes, and begin anew
// with a thousand pairs until the time is over. Both run at the same time,
// each with an ipamd, a folder and a namespace of its own. The book of
// TestL1AnswersWaitForASlowDisk is on a disk that takes 20 ms to begin a
// commit: an ipamd that answers before it commits is killed in between by the
// caller that it has answered. On a quick disk it has written before the kill arrives.
//
// # Running it
//
// TestStorm takes a minute, half of it for the attacks one by one, and by `make storm`
// four; then TestL1Linearizable and TestL6Linearizable kill for a quarter of a minute, by
// `make storm` for three (-storm.linear). -storm.for is the time, -storm.seed
// draws the same faults again (not the same interleaving: the kernel has a
// say), and -storm.containerd chooses debian or v2; without it the seed does.
package storm
