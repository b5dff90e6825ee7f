package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/reconciler"
)

// refusedFor is how long a finding of refused packets outlives the last one.
const refusedFor = 15 * time.Minute

// bindWithin is how long a port without a lease may send before that is a finding, where it may not
// send at all: a kernel joins its multicast groups once a link is up, before the sandbox's bind.
const bindWithin = time.Minute

// Rules are those of the kernel, as they hold just now.
type Rules struct {
	enforce.Status
	Refused     []enforce.Recent
	Differences []enforce.Difference // of the kernel's table, where it was read just now
}

// oneLine is an error that may be several, each of which has a line of its own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// mostDifferences bounds what a finding says of the table.
const mostDifferences = 5

// findings are what is wrong with the rules, and who was refused.
func (r *Rules) findings() (out []reconciler.Finding) {
	if r == nil {
		return nil
	}
	if r.Err != nil {
		out = append(out, reconciler.Finding{Kind: "rules_not_held", Since: r.Since, Detail: oneLine(r.Err), Repair: "ipamctl explain rules_not_held"})
	}
	if n := len(r.Differences); n > 0 {
		var some []string
		for _, d := range r.Differences[:min(n, mostDifferences)] {
			some = append(some, d.String())
		}
		out = append(out, reconciler.Finding{Kind: "rules_differ", Since: time.Now(), Repair: "ipamctl rules",
			Detail: fmt.Sprintf("the kernel's table is not what the book asks for, in %d: %s; ipamd repairs it when it sees it", n, strings.Join(some, "; "))})
	}
	done := "dropped"
	if r.Policy.Mode == enforce.Observe {
		done = "counted only, and would be dropped by mode enforce"
	}
	// In order of ports, so those of one port are together: they are one finding.
	for rest := r.Refused; len(rest) > 0; {
		first, n := rest[0], 1
		for n < len(rest) && rest[n].Port == first.Port {
			n++
		}
		var counts []string
		since := first.Since
		for _, of := range rest[:n] {
			counts = append(counts, fmt.Sprintf("%d by %s", of.Packets, of.Reason))
			if of.Since.Before(since) {
				since = of.Since
			}
		}
		before := len(first.Grants) == 0 && n == 1 && first.Reason == enforce.NoLease && time.Since(since) < bindWithin
		if rest = rest[n:]; before {
			continue
		}
		f := reconciler.Finding{Kind: "packets_refused", Since: since, Repair: "ipamctl explain packets_refused", Source: reconciler.Source{Port: first.Name}}
		who := "no lease"
		if len(first.Grants) > 0 {
			of := first.Grants[0]
			f.Addr, f.LeaseID, f.Source.MAC = of.Addr.Addr(), of.Lease, of.MAC
			who = fmt.Sprintf("lease %s of %s", f.LeaseID, f.Addr)
		}
		f.Detail = fmt.Sprintf("port %s, %s, sent packets that are not its own: %s; they are %s", first.Name, who, strings.Join(counts, ", "), done)
		out = append(out, f)
	}
	return out
}
