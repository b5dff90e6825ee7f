package main

import (
	"cmp"
	"fmt"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// hintUnanswered is for a daemon that gives no sign of life, hintSlow for one that
// did and left the verb without an answer.
const (
	hintUnanswered = "why it does not start: systemctl status ipamd, journalctl -u ipamd; to wait longer: --timeout 1m"
	hintSlow       = "if nothing answers: systemctl status ipamd, journalctl -u ipamd; if it is only slow: --timeout 1m"
)

// hintFor is the step that a person would take next after an error of the
// daemon. It names verbs that exist, with what the failed verb was about.
func hintFor(e *api.Error, about subject) string {
	named, _ := e.Details["address"].(string)
	address, lease, pool := term.Word(cmp.Or(named, about.address, "ADDRESS")), term.Word(cmp.Or(about.lease, "LEASE")), term.Word(cmp.Or(about.pool, "POOL"))
	switch e.Code {
	case api.InvalidArgument:
		field, _ := e.Details["field"].(string)
		if field == "pool" {
			return "the pools: ipamctl pools"
		} else if field == "family" { // a pool lacks one: what is no family is refused before
			return "the pools and their prefixes: ipamctl pools"
		} else if field == "path" && about.verb == "ipamctl book backup" {
			return "the service may write below /var/lib/ipamd only: ipamctl book backup /var/lib/ipamd/backup.db"
		}
		hint := "what it takes: " + cmp.Or(about.verb, "ipamctl VERB") + " --help"
		if field != "" {
			hint = "the argument is " + field + "; " + hint
		}
		return hint
	case api.NotInPool:
		return "the pools and their prefixes: ipamctl pools"
	case api.NotFound:
		if e.Details["kind"] != nil {
			return "what there is: ipamctl explain"
		}
		switch {
		case about.pool != "":
			return "the pools: ipamctl pools"
		case about.lease != "":
			return "the leases: ipamctl leases"
		}
		return "what there is: ipamctl leases, ipamctl pools"
	case api.LeaseGone:
		return fmt.Sprintf("nothing is left to do; how it ended: ipamctl history --lease %s", lease)
	case api.StaleRevision:
		switch {
		case about.book:
			return "the book is of another epoch by now; look again: ipamctl book adopt"
		case about.lease == "" && address != "ADDRESS":
			return "it changed meanwhile; look again: ipamctl whois " + address
		}
		return "it changed meanwhile; look again: ipamctl show " + lease
	case api.AttemptCancelled:
		return "this attempt was cancelled; ask with a higher --attempt"
	case api.AddressTaken:
		return "who holds it: ipamctl whois " + address
	case api.NameTaken:
		return "who has it: ipamctl leases -o wide, ip link"
	case api.AddressQuarantined:
		return "who was seen there: ipamctl whois " + address
	case api.StateNotAllowed:
		if e.Details["evidence"] != nil {
			return "who is seen there: ipamctl whois " + address
		}
		switch {
		case about.lease == "" && address != "ADDRESS":
			return "its state and how it came to it: ipamctl whois " + address
		case about.lease == "":
			return "what there is, and how it came to it: ipamctl pools, ipamctl leases, ipamctl history"
		}
		return fmt.Sprintf("its state and how it came to it: ipamctl show %[1]s, ipamctl history --lease %[1]s", lease)
	case api.WakeTimeout, api.WakeRefused:
		return fmt.Sprintf("its flight, and how it ended: ipamctl show %[1]s -o yaml; if the sandbox runs: ipamctl resume %[1]s", lease)
	case api.NoWarmSlot:
		return "the slots there are, and why not more: ipamctl warm, ipamctl status; or take an address without one: --on-empty cold"
	case api.PoolOverlap:
		return "the pools as they are: ipamctl pools"
	case api.StaleGeneration:
		return "the pool has changed since; as it is: ipamctl pool show " + pool
	case api.PoolNotEmpty:
		hint := fmt.Sprintf("which they are: ipamctl leases --pool %s; to let them end in their time: ", pool)
		if about.verb == "ipamctl pool rm" {
			return hint + "ipamctl pool rm " + pool + " --mode drain"
		}
		return hint + "the same command with --drain"
	case api.IdentityMismatch:
		return "the book belongs to another runner; what it holds, and how to take it over: ipamctl book adopt"
	case api.PoolExhausted:
		return "what fills the pool: ipamctl pools, ipamctl map"
	case api.ConflictLimit:
		return "who is on these addresses: ipamctl quarantine ls, ipamctl doctor"
	case api.EvidenceUnavailable:
		return "which witness is silent, and why: ipamctl status"
	case api.BridgeNotReady, api.NotReady:
		return "what is missing: ipamctl status"
	case api.BookReadonly:
		return "why it cannot be written: ipamctl status; reads still work, no restart is needed"
	case api.BookBusy:
		return "another process holds the book's lock: fuser /var/lib/ipamd/book.db; try again"
	case api.TooManyRequests:
		return "this user or process asks for more than its share; try again in a moment"
	case api.Compacted:
		return "the history before this is gone; list again"
	case api.DeadlineExceeded:
		return "try again, or give it more time: --timeout 1m"
	case api.PermissionDenied:
		if e.Details["role"] == string(api.Admin) {
			return "only root may: try it with sudo"
		}
		return "root may, and the users and groups that socket.runtime_uids and socket.runtime_gids of ipamd's configuration name"
	default:
		return "the daemon's log has the reason: journalctl -u ipamd"
	}
}
