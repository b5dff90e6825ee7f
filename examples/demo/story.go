package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// lost is the address whose lease the book loses: alpha's, the first of the
// pool.
const lost = "10.8.64.2"

// A story is told once, act by act, and ends at the first thing that is not as
// it says.
type story struct {
	*teller
	ask        *client.Client // the daemon's word, for the checks
	containerd *daemon
	ipamd      *daemon
}

func newStory(t *teller) *story { return &story{teller: t, ask: new(client.Client)} }

func (s *story) tell(ctx context.Context) error {
	for _, act := range []func(context.Context) error{
		s.begin, s.threeSandboxes, s.ping, s.look, s.goRound, s.loseLease, s.fourth, s.evidence, s.peace,
		s.failedRemoval, s.keptBack, s.confirmed, s.withoutContainerd,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	s.end()
	return nil
}

// begin starts the daemons.
func (s *story) begin(ctx context.Context) error {
	s.title("A runner: containerd and ipamd")
	s.say("In namespaces of their own, which end with this demo. The host is not touched.")
	if err := s.startContainerd(ctx); err != nil {
		return err
	}
	s.say("containerd runs. ipamd is to make the bridge rt0 and look after five addresses:")
	for line := range strings.Lines(ipamdConfig) {
		s.say("    %s", strings.TrimSpace(line))
	}
	if err := s.startIPAMD(ctx); err != nil {
		return err
	}
	if err := s.show(ctx, "ipamctl", "status"); err != nil {
		return err
	}
	status, err := s.ask.Status(ctx)
	if err != nil {
		return err
	}
	return s.holds(status.Ready && len(status.Silent) == 0 && status.Bridge.Ready,
		"ipamd is ready, and every witness answers")
}

// threeSandboxes runs three containers.
func (s *story) threeSandboxes(ctx context.Context) error {
	s.title("Three sandboxes")
	s.say("The example runtime asks ipamd for an address, sets it on the container's veth, writes it")
	s.say("to the container's labels, and ipamd records where it went.")
	first := [][2]string{{"alpha", lost}, {"beta", "10.8.64.3"}, {"gamma", "10.8.64.4"}}
	for _, pair := range first {
		if _, err := s.run(ctx, "sandbox", "run", pair[0]); err != nil {
			return err
		}
	}
	for _, pair := range first {
		if err := s.owns(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// owns checks that an address belongs to a sandbox, by the book, the kernel
// and containerd. The book says so at once; the word of the other two reaches
// ipamd by events, so it has a moment.
func (s *story) owns(ctx context.Context, name, addr string) error {
	ok := false
	for end := time.Now().Add(patience); !ok && time.Now().Before(end); time.Sleep(time.Millisecond) {
		who, err := s.ask.Whois(ctx, addr)
		if err != nil {
			return err
		}
		if who.Owner != name || who.State != api.Bound {
			break
		}
		ok = seenIn(who, "netns", "") && seenIn(who, "runtime", name)
	}
	return s.holds(ok, "%s is bound to %s in the book, and kernel and containerd see it there", addr, name)
}

// seenIn reports whether a witness sees the address, in that container if one
// is named.
func seenIn(who *api.WhoisReply, witness, container string) bool {
	for _, w := range who.Witnesses {
		if w.Witness == witness && w.Answer == "seen" {
			return has(w.Seen, witness, container)
		}
	}
	return false
}

func has(seen []api.Sighting, witness, container string) bool {
	for _, e := range seen {
		if e.Witness == witness && (container == "" || e.Container == container) {
			return true
		}
	}
	return false
}

// ping lets the sandboxes reach each other.
func (s *story) ping(ctx context.Context) error {
	s.title("They reach each other")
	for _, pair := range [][2]string{{"alpha", "10.8.64.3"}, {"beta", "10.8.64.4"}, {"gamma", lost}, {"gamma", "10.8.64.1"}} {
		if err := s.reaches(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// reaches sends another packet where one is lost: all namespaces of a machine share a
// table of neighbours, and while others fill it nobody new is found.
func (s *story) reaches(ctx context.Context, name, addr string) (err error) {
	var out string
	for range 10 {
		if out, err = s.run(ctx, "sandbox", "exec", name, "--", "ping", "-q", "-c", "1", "-W", "3", addr); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	return s.holds(strings.Contains(out, " 0% packet loss"), "%s reaches %s", name, addr)
}

// look shows what an operator sees.
func (s *story) look(ctx context.Context) error {
	s.title("What an operator sees")
	for _, verb := range [][]string{{"leases"}, {"map"}, {"whois", lost}} {
		if err := s.show(ctx, append([]string{"ipamctl"}, verb...)...); err != nil {
			return err
		}
	}
	all, err := s.ask.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		return err
	}
	return s.holds(len(all.Leases) == 3, "there are three leases")
}

// goRound moves the book's walk over never-used addresses to its end, so that
// it comes to the lost one next.
func (s *story) goRound(ctx context.Context) error {
	s.title("Time goes by")
	s.say("ipamd walks through the pool and does not begin again at the low end for every request.")
	s.say("Two requests that never become a sandbox bring the walk to the pool's last address, so")
	s.say("the next request gets the lowest free one.")
	for _, addr := range []string{"10.8.64.5", "10.8.64.6"} {
		name := "visitor-" + addr[len(addr)-1:]
		if err := s.show(ctx, "ipamctl", "allocate", name); err != nil {
			return err
		}
		who, err := s.ask.Whois(ctx, addr)
		if err != nil {
			return err
		}
		if err := s.holds(who.Owner == name, "%s got %s", name, addr); err != nil {
			return err
		}
		if err := s.show(ctx, "ipamctl", "release", who.Lease.ID); err != nil {
			return err
		}
		if who, err = s.ask.Whois(ctx, addr); err != nil {
			return err
		}
		if err := s.holds(who.State == api.Free, "%s, never bound and never seen, is free at once", addr); err != nil {
			return err
		}
	}
	return nil
}

// loseLease replays how book and wire drifted apart.
func (s *story) loseLease(ctx context.Context) error {
	s.title("The incident: the book loses the lease of a running sandbox")
	s.say("ipamd is stopped, and the row of alpha's address is deleted from its book.")
	if err := s.ipamd.stop(); err != nil {
		return err
	}
	out, err := s.run(ctx, "sqlite3", book, "DELETE FROM leases WHERE address = '"+lost+"'; SELECT changes();")
	if err != nil {
		return err
	}
	if err := s.holds(strings.TrimSpace(out) == "1", "one row is gone"); err != nil {
		return err
	}
	if err := s.reaches(ctx, "beta", lost); err != nil {
		return err
	}
	s.say("alpha runs on, and needs no ipamd for it. ipamd is started again.")
	if err := s.startIPAMD(ctx); err != nil {
		return err
	}
	if err := s.show(ctx, "ipamctl", "whois", lost); err != nil {
		return err
	}
	return s.owns(ctx, "alpha", lost)
}

// fourth is where the predecessor gave the address to a second sandbox.
func (s *story) fourth(ctx context.Context) error {
	s.title("Another sandbox asks")
	s.say("A lease table alone would give it %s, the lowest address without a row. But before ipamd", lost)
	s.say("answered its first request, it had found alpha there and written the lease anew.")
	if _, err := s.run(ctx, "sandbox", "run", "delta"); err != nil {
		return err
	}
	if err := s.owns(ctx, "delta", "10.8.64.5"); err != nil {
		return err
	}
	history, err := s.ask.History(ctx, client.HistoryFilter{Limit: 5})
	if err != nil {
		return err
	}
	var moves []string
	for _, c := range slices.Backward(history.Changes) {
		if c.From == api.Free && (c.Address == lost || c.Sandbox == "delta") {
			moves = append(moves, fmt.Sprintf("%s %s>%s", c.Address, c.From, c.To))
		}
	}
	return s.holds(strings.Join(moves, ", ") == lost+" free>bound, 10.8.64.5 free>reserved",
		"the history says the same: %s", strings.Join(moves, ", "))
}

// evidence shows by what the lease was found again.
func (s *story) evidence(ctx context.Context) error {
	s.title("The evidence")
	for _, verb := range [][]string{{"history", lost}, {"map"}, {"doctor"}} {
		if err := s.show(ctx, append([]string{"ipamctl"}, verb...)...); err != nil {
			return err
		}
	}
	who, err := s.ask.Whois(ctx, lost)
	if err != nil {
		return err
	}
	adopted := who.History[0]
	if err := s.holds(adopted.Actor == "reconciler" && adopted.From == api.Free && adopted.To == api.Bound,
		"alpha's lease was adopted, and nobody else had the address in between"); err != nil {
		return err
	}
	return s.holds(has(adopted.Evidence, "netns", "") && has(adopted.Evidence, "runtime", "alpha"),
		"the evidence names the network namespace behind a port, and the container alpha")
}

// peace checks that nobody lost anything.
func (s *story) peace(ctx context.Context) error {
	s.title("Nobody noticed")
	for _, pair := range [][2]string{{"delta", lost}, {"alpha", "10.8.64.5"}, {"gamma", lost}} {
		if err := s.reaches(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	out, err := s.run(ctx, "sandbox", "ps")
	if err != nil {
		return err
	}
	holders := make(map[string]int)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 && f[2] == "running" {
			holders[f[1]]++
		}
	}
	alone := len(holders) == 4
	for _, n := range holders {
		alone = alone && n == 1
	}
	return s.holds(alone, "four sandboxes run, each with an address of its own")
}
