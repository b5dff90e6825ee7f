package rebuild

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// A Report is the outcome of a rebuild. Its JSON form is for programs.
type Report struct {
	Book     string `json:"book"`
	Preview  bool   `json:"preview"`
	Finished bool   `json:"finished"`       // one that was cut short
	Verb     string `json:"verb,omitempty"` // restore or import; "" for rebuild
	File     string `json:"file,omitempty"` // that was taken in
	Broken   string `json:"broken,omitempty"`
	Aside    string `json:"aside,omitempty"` // where the old book is
	WasEpoch string `json:"was_epoch,omitempty"`
	Epoch    string `json:"epoch"`
	Runner   string `json:"runner_uid"`

	Leases      []Row    `json:"leases"`    // who lives
	Foreign     []Row    `json:"foreign"`   // seen, and no lease's
	SetAside    []Row    `json:"set_aside"` // withheld, as only the old book has it
	Unexplained []string `json:"unexplained"`

	Became []Outcome `json:"became,omitempty"` // what became of each lease of the file and of the present book
}

// A Row is one address of the new book.
type Row struct {
	Address    string           `json:"address"`
	State      ipam.State       `json:"state"`
	Sandbox    string           `json:"sandbox,omitempty"`
	LeaseID    string           `json:"lease_id"`
	Kept       bool             `json:"lease_id_kept"` // it was the old lease's, too
	Containers []ipam.Container `json:"containers,omitempty"`
	Was        ipam.State       `json:"was,omitempty"`      // in the old book; "" when that is unknown
	Evidence   json.RawMessage  `json:"evidence,omitempty"` // why it is quarantined
	Hold       string           `json:"hold,omitempty"`     // why only an operator clears it
	NoPool     bool             `json:"no_pool,omitempty"`  // no pool has it: it is beside them, until one does
}

// report describes the book as it is now.
func (r *restorer) report() *Report {
	out := reportOf(r.Book)
	named := make(map[string]bool) // ids of leases that are on record
	for _, seen := range r.census.Seen {
		for _, s := range seen {
			named[s.LeaseID] = true
		}
	}
	was := make(map[string]ipam.State)
	for _, l := range r.old.Leases {
		named[l.ID], was[l.Addr.String()] = true, l.State
	}
	for _, rows := range [][]Row{out.Leases, out.Foreign, out.SetAside} {
		for i := range rows {
			rows[i].Kept, rows[i].Was = named[rows[i].LeaseID], was[rows[i].Address]
		}
	}
	if r.old.RunnerUID == "" {
		r.explain("whose the old book was cannot be read; the new one is runner %s's", out.Runner)
	}
	for _, p := range r.old.Problems {
		r.explain("the old book: %s", p)
	}
	if len(r.old.Problems) > 0 {
		r.explain("rows were lost: an address of one is free now, unless a line above says that it is held, or it is seen in use")
	}
	out.Unexplained = append(out.Unexplained, r.unexplained...)
	return out
}

// reportOf describes a rebuilt book by what it records.
func reportOf(b *netdb.Book) *Report {
	out := &Report{Epoch: b.Epoch(), Runner: b.Info().RunnerUID,
		Leases: []Row{}, Foreign: []Row{}, SetAside: []Row{}, Unexplained: []string{}}
	leases, _ := b.Leases()
	for _, l := range leases {
		row := Row{Address: l.Addr.String(), State: l.State, Sandbox: l.Sandbox, LeaseID: l.ID, Containers: l.Containers}
		if l.State != ipam.Quarantined && l.State != ipam.Cooling {
			out.Leases = append(out.Leases, row)
			continue
		}
		row.Evidence = l.Evidence
		row.Hold = l.Hold
		kept := l.State == ipam.Cooling
		for _, s := range census.ParseEvidence(l.Evidence) {
			if s.Witness == census.Book {
				kept, row.Sandbox = true, cmp.Or(row.Sandbox, s.Sandbox)
			}
		}
		if kept {
			out.SetAside = append(out.SetAside, row)
		} else {
			out.Foreign = append(out.Foreign, row)
		}
	}
	for _, w := range b.Withheld() {
		out.SetAside = append(out.SetAside, Row{Address: w.Addr.String(), State: w.State, Sandbox: w.Sandbox, LeaseID: w.LeaseID, Evidence: w.Evidence, Hold: w.Hold, NoPool: true})
	}
	return out
}

func (b *Report) Json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(b)
}

func (b *Report) Text(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	switch {
	case b.Verb != "" && b.Preview:
		fmt.Fprintf(w, "%s would be made anew, with what is in %s; nothing was changed\n", b.Book, b.File)
	case b.Verb != "":
		fmt.Fprintf(w, "%s is made anew, with what is in %s\n", b.Book, b.File)
	case b.Preview:
		fmt.Fprintf(w, "%s would be rebuilt; nothing was changed\n", b.Book)
	case b.Finished:
		fmt.Fprintf(w, "%s is rebuilt: what had been cut short is finished\n", b.Book)
	default:
		fmt.Fprintf(w, "%s is rebuilt\n", b.Book)
	}
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, value)
		}
	}
	line("it was", b.Broken)
	line("it is now", b.Aside)
	line("old epoch", b.WasEpoch)
	if !b.Preview {
		line("epoch", b.Epoch)
	}
	line("runner", b.Runner)
	b.became(w)
	b.tables(w)
	if len(b.Unexplained) > 0 {
		fmt.Fprintf(w, "\nNot explained\n")
		for _, u := range b.Unexplained {
			fmt.Fprintf(w, "  %s\n", u)
		}
	}
	next := "systemctl start ipamd.socket ipamd.service; without the units: ipamd run"
	switch {
	case b.Preview && b.Verb != "":
		next = "ipamd " + b.Verb + " " + b.File + " --confirm"
	case b.Preview:
		next = "ipamd rebuild"
	}
	fmt.Fprintf(w, "\nnext: %s\n", next)
	return w.Flush()
}

// became lists what becomes of each lease, where a file is taken in.
func (b *Report) became(w io.Writer) {
	if b.Verb == "" {
		return
	}
	fmt.Fprintf(w, "\nWhat becomes of each lease: %d\n", len(b.Became))
	if len(b.Became) > 0 {
		fmt.Fprintln(w, "ADDRESS\tSANDBOX\tIN\tWAS\tBECOMES\tWHY")
	}
	for _, o := range b.Became {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", o.Address, shown(o.Sandbox), o.From, o.Was, strings.ReplaceAll(o.Outcome, "_", " "), o.Why)
	}
}

func (b *Report) tables(w io.Writer) {
	fmt.Fprintf(w, "\nLeases of live workloads: %d\n", len(b.Leases))
	if len(b.Leases) > 0 {
		fmt.Fprintln(w, "ADDRESS\tSANDBOX\tSTATE\tLEASE\t\tCONTAINERS")
	}
	for _, l := range b.Leases {
		id := "new"
		if l.Kept {
			id = "kept"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Address, shown(l.Sandbox), l.State, l.LeaseID, id, containersOf(l.Containers))
	}
	fmt.Fprintf(w, "\nSeen, and no lease's: %d\n", len(b.Foreign))
	if len(b.Foreign) > 0 {
		fmt.Fprintln(w, "ADDRESS\tSTATE\tSEEN")
	}
	for _, f := range b.Foreign {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Address, f.State, f.why())
	}
	fmt.Fprintf(w, "\nWithheld, as by the old book: %d\n", len(b.SetAside))
	if len(b.SetAside) > 0 {
		fmt.Fprintln(w, "ADDRESS\tSANDBOX\tWAS\tSTATE\tUNTIL")
	}
	for _, a := range b.SetAside {
		was := cmp.Or(a.Was, "unknown")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.Address, shown(a.Sandbox), was, a.State, a.until())
	}
}

// why names the witnesses of a quarantined address.
func (f Row) why() string {
	var why []string
	for _, s := range census.ParseEvidence(f.Evidence) {
		why = append(why, string(s.Witness)+s.Where())
	}
	return strings.Join(why, ", ")
}

// until is when an address that is withheld can be given again.
func (a Row) until() string {
	switch {
	case a.NoPool:
		return "a pool has it, and then as there"
	case a.State == ipam.Cooling:
		return "its cooldown is over"
	case a.Hold != "":
		return "ipamctl quarantine clear " + a.Address
	}
	return "it has not been seen for long enough"
}

func containersOf(cs []ipam.Container) string {
	var names []string
	for _, c := range cs {
		names = append(names, c.Namespace+"/"+c.ID)
	}
	return strings.Join(names, " ")
}

// shown keeps a sandbox's name, which its client chooses, from steering the terminal.
func shown(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}
