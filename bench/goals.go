package main

// A goal is measured in rounds. open makes what it is measured with and returns the
// round, which returns a ratio for each row. Its name is the number of the goal, and behind a
// slash which part of it; a row that is of another goal names that.
type goal struct {
	name, about string
	open        func(*run) func() []ratio
	once        bool // a round is long, or has a spread of its own
	rows        []wanted
}

// wanted is what a ratio should be: at most, or at least. Neither: it is there for
// scale. The limit is for the median of the rounds, or for the worst of them.
type wanted struct {
	what        string
	of          string // the goal's number, where it is another than that of the round
	most, least float64
	worst       bool
}

var goals = []goal{
	{name: "1", about: "one caller", open: oneCaller, rows: []wanted{
		{what: "allocate, p50 / (F + R)", most: 1.5},
		{what: "allocate, p99 / (F + R)", most: 3},
		{what: "release, p50 / (F + R)", most: 1.5},
		{what: "release, p99 / (F + R)", most: 3},
		{what: "the yardsticks' own p99 / (F + R)"},
	}},
	{name: "2", about: "the book in process", open: bookAlone, rows: []wanted{
		{what: "reserve in process, p50 / F", most: 1.4},
		{what: "pages written a commit / 1", most: 4},
	}},
	{name: "3", about: "flat", open: flat, rows: []wanted{
		{what: "allocate from a full book / from an empty one, p50", most: 1.1},
		{what: "release into a full book / into an empty one, p50", most: 1.1},
	}},
	{name: "4", about: "many callers", open: manyCallers, rows: []wanted{
		{what: "calls/s of many callers / of one", least: 6},
		{what: "calls/s of many callers / E64", least: 0.5},
		{what: "p99 of many callers / the echo's own", most: 2},
		{what: "processor time of one of their calls / 80 µs", most: 1},
	}},
	{name: "5", about: "the live check", open: liveCheck, rows: []wanted{
		{what: "(allocate with the live check - without), p50 / F", most: 0.15},
	}},
	{name: "6", about: "a minute of full load", open: fullLoad, once: true, rows: []wanted{
		{what: "the log at its longest / 16 MiB", most: 1},
		{what: "a commit in the last second / in the first, p50", most: 1.2},
		{what: "a commit in the last five seconds / in the first five, p50"},
	}},
	{name: "7", about: "the start", open: restart, rows: []wanted{
		{what: "ready with a full book / a plain scan of all that it holds", most: 1.2},
	}},
	{name: "8", about: "at rest", open: atRest, rows: []wanted{
		{what: "on a full runner at rest, resident / 60 MB", most: 1},
		{what: "the same, processor time / 0.5 % of a core", most: 1},
		{what: "the program, static and stripped / 30 MB", most: 1},
	}},
	{name: "8/64", about: "a large pool", open: largeMemory, rows: []wanted{
		{what: "resident after more calls on a /64 / before", most: 1.05},
	}},
	{name: "8/pools", about: "a pool's size", open: poolSizes, rows: []wanted{
		{what: "resident with 200 leases of a /8 / of a /24", most: 1.1},
		{what: "resident with 200 leases of a /64 / of a /24", most: 1.1},
	}},
	{name: "10", about: "an address behind a port", open: newAddress, rows: []wanted{
		{of: "9", what: "a whole inventory of a full bridge, a port / 80 µs", most: 1},
		{what: "an address comes behind a port of a full bridge, known, p50 / 5 ms", most: 1},
		{what: "the same, p99 / 5 ms, or a bare socket's p99 where that is more", most: 1},
		{what: "the bare socket's p99 / 5 ms"},
	}},
	{name: "12", about: "the confirmation of a removal", open: removal, once: true, rows: []wanted{
		{what: "released before: Delete to cooling, p50 / 20 ms", most: 1},
		{what: "released before: p99 / (Delete's p99 + 10 F)", most: 2},
		{what: "never released: Delete to cooling, p50 / 20 ms", most: 1},
		{what: "never released: p99 / (Delete's p99 + 10 F)", most: 2},
		{what: "released after, with wait: Delete to cooling, p50 / 20 ms", most: 1},
		{what: "released after, with wait: p99 / (Delete's p99 + 10 F)", most: 2},
	}},
	{name: "14", about: "an allocation beside a pass", open: besidePass, rows: []wanted{
		{of: "13", what: "a pass over a full runner, processor time / 400 ms", most: 1},
		{what: "timed: (allocate beside a pass - without) / (an echo that syncs beside it - without), p50", most: 1.5},
		{what: "timed: (allocate beside a pass that ends leases - without) / (an echo that syncs beside it - without), p50", most: 1.5},
	}},
	{name: "14/counted", about: "commits before an allocation's own", open: commitsBefore, rows: []wanted{
		{what: "beside a pass: commits between asking the book and one's own, the most / 1", most: 1, worst: true},
		{what: "beside a pass that ends leases: the same", most: 1, worst: true},
		{what: "the same, mean / 1"},
	}},
	{name: "15", about: "an allocation beside a guest's flood", open: besideFlood, rows: []wanted{
		{what: "ARP requests from ever new addresses and MACs: allocate beside / quiet, p50", most: 3},
		{what: "ARP answers, likewise", most: 3},
		{what: "neighbour advertisements, likewise", most: 3},
		{what: "links that come and go, likewise", most: 3},
		{what: "the same ARP requests, to a MAC that is not there, likewise"},
	}},
	{name: "16", about: "an allocation beside readers that scan", open: besideReaders, rows: []wanted{
		{what: "history of unknown ids: allocate and release of others, p99 beside / alone", most: 2},
		{what: "listings of a full book: the same", most: 2},
		{what: "listings of a full book: an echo that syncs, p99 beside / alone"},
	}},
	{name: "17", about: "the stream of changes", open: stream, rows: []wanted{
		{what: "a change reaches a watcher after the answer to its caller, p50 / R", most: 1},
		{what: "calls/s of many callers beside 1 000 watchers, ten of them stuck / alone", least: 0.9},
		{what: "a replay of the history, changes/s / 200 000", least: 1},
		{what: "the same, processor time of a change / 5 µs"},
		{what: "routes.Table of 100 000: an update / 1 µs", most: 1},
		{what: "the same: a look-up / 100 ns", most: 1},
	}},
	{name: "18", about: "rules of fifty thousand elements", open: rulesOfMany, rows: []wanted{
		{what: "the rules of one bind, p50 / F", most: 1},
		{what: "a start that makes all of them / 2 s", most: 1},
	}},
	{name: "18/packets", about: "a packet through rules", open: throughRules, rows: []wanted{
		{what: "there and back over a bridge with 50 000 elements / over one without rules, p50", most: 1.05},
		{what: "bytes of a stream over the one / over the other", least: 0.95},
	}},
	{name: "19", about: "a sandbox that traffic wakes", open: waking, rows: []wanted{
		{what: "(first SYN to the answer of a frozen task - containerd's own Resume and an answer), p50 / 2 ms", most: 1},
		{what: "the same, p99 / Resume's p99", most: 2},
		{what: "the same, p50 / Resume's p50"},
	}},
	{name: "19/hibernated", about: "a hibernated sandbox that traffic wakes", open: hibernated, rows: []wanted{
		{what: "first SYN to the answer of one that is restored meanwhile / 1 s, the client's first retransmit, p50", most: 1.1},
	}},
	{name: "19/flood", about: "a flood to a sleeper that is not woken", open: floodOfWakes, rows: []wanted{
		{what: "processor time of ipamd / 5 % of a core", most: 1},
		{what: "packets/s / 200 000"},
	}},
	{name: "19/idle", about: "when sandboxes had traffic last", open: idleTimes, rows: []wanted{
		{what: "a reading for a thousand sandboxes, p50 / 10 ms", most: 1},
	}},
	{name: "20/port", about: "a port", open: attaching, rows: []wanted{
		{what: "a port is made / its bare netlink calls, p50", most: 1.3},
		{what: "allocate with attach / (the bare calls + 2 F + 3 R), p50"},
	}},
	{name: "20", about: "a warm slot", open: warmSlots, rows: []wanted{
		{what: "a sandbox is given a slot / allocate with attach, p50", most: 0.4},
		{what: "slots/s of a pool that is filled / of the machine alone, on the same bridge", least: 0.8},
	}},
	{name: "21", about: "an ADD of CNI", open: byCNI, rows: []wanted{
		{what: "ipamd's plugin / host-local, nothing taken, p50", most: 0.75},
		{what: "(ipamd's plugin that answers VERSION + F + R) / host-local, nothing taken, p50"},
		{what: "host-local that answers VERSION / its ADD, nothing taken, p50"},
		{what: "ipamd's plugin / host-local, 10 000 taken, p50", most: 0.05},
	}},
	{name: "peers", about: "what others take", open: besidePeers, rows: []wanted{
		{what: "host-local, nothing taken / ipamd, p50", least: 6},
		{what: "host-local, most of a /16 taken / ipamd, p50", least: 1000},
		{what: "allocations/s of many callers: ipamd / host-local", least: 50},
		{what: "a table scan in SQLite, most of a /16 taken / ipamd, p50", least: 1000},
		{what: "(AWS's datastore, nothing taken + R) / ipamd, p50", least: 1},
		{what: "(AWS's datastore, a sixth of a /16 taken + R) / ipamd, p50", least: 10},
		{what: "Docker's allocator, in memory and in process, nothing taken / ipamd, p50"},
	}},
}
