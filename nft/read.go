package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Generation is a number that every transaction of any program changes.
func (c *Conn) Generation() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation()
}

func (c *Conn) generation() (uint32, error) {
	m := netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{0, unix.NFNETLINK_V0, 0, 0},
	}
	answer, err := c.sock.Execute(m)
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	for _, a := range answer {
		if g, ok := attribute(a.Data, unix.NFTA_GEN_ID); ok && len(g) == 4 {
			return binary.BigEndian.Uint32(g), nil
		}
	}
	return 0, errors.New("read the generation of nftables: an answer without one")
}

// attribute finds one attribute in the body of a message.
func attribute(body []byte, typ uint16) ([]byte, bool) {
	if len(body) < 4 {
		return nil, false
	}
	d, err := netlink.NewAttributeDecoder(body[4:])
	if err != nil {
		return nil, false
	}
	for d.Next() {
		if d.Type() == typ {
			return d.Bytes(), true
		}
	}
	return nil, false
}

// mostReads bounds how often a table is read anew because it changed meanwhile.
const mostReads = 20

// Read reads a table back, by the description of the one that should be there: its sets'
// types are taken from it. It is nil where there is none. While the kernel enlarges a set,
// its list may lack elements that are there: to add them once more changes nothing. What
// changes all the time is read at most mostReads times, then the last reading is returned.
func (c *Conn) Read(ctx context.Context, like *Table) (*Table, error) {
	for try := 1; ; try++ {
		before, err := c.Generation()
		if err != nil {
			return nil, err
		}
		t, err := c.readOnce(like)
		if e := ctx.Err(); e != nil {
			return nil, e
		}
		after, e := c.Generation()
		if e != nil {
			return nil, e
		}
		if before == after || try == mostReads {
			return t, err
		}
	}
}

// dormant is the flag of a table whose chains do not run (NFT_TABLE_F_DORMANT), in either order
// of bytes: the kernel reports the network's, and versions of the library differ in what they
// make of it.
const dormant = 1 | 1<<24

func (c *Conn) readOnce(like *Table) (*Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	where := &nftables.Table{Family: like.Family, Name: like.Name}
	fail := func(what string, err error) (*Table, error) {
		return nil, fmt.Errorf("read %s of table %s %s: %w", what, familyName(like.Family), like.Name, err)
	}
	tables, err := c.nl.ListTablesOfFamily(like.Family)
	if err != nil {
		return fail("the name", err)
	}
	at := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == like.Name })
	if at < 0 {
		return nil, nil
	}
	out := &Table{Family: like.Family, Name: like.Name, Dormant: uint32(tables[at].Flags)&dormant != 0}
	sets, err := c.nl.GetSets(where)
	if err != nil {
		return fail("sets", err)
	}
	for _, s := range sets {
		if s.Anonymous {
			continue // it goes with its rule
		}
		r, err := c.readSet(s, like.Set(s.Name))
		if err != nil {
			return fail("set "+s.Name, err)
		}
		out.Sets = append(out.Sets, r)
	}
	chains, err := c.nl.ListChainsOfTableFamily(like.Family)
	if err != nil {
		return fail("chains", err)
	}
	for _, ch := range chains {
		if ch.Table.Name != like.Name {
			continue
		}
		r := &Chain{Name: ch.Name}
		if ch.Hooknum != nil {
			r.Base = &Base{Hook: *ch.Hooknum, Priority: int32(*ch.Priority), Drops: ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop}
		}
		rules, err := c.nl.GetRules(where, ch)
		if err != nil {
			return fail("chain "+ch.Name, err)
		}
		for _, rule := range rules {
			why, _ := userdata.GetString(rule.UserData, userdata.TypeComment)
			r.Rules = append(r.Rules, Rule{Why: why, Do: []Statement{{do: rule.Exprs}}})
		}
		out.Chains = append(out.Chains, r)
	}
	return out, nil
}

func (c *Conn) readSet(s *nftables.Set, like *Set) (*Set, error) {
	// The library gives a map to verdicts the verdicts' type for its keys'.
	out := &Set{Name: s.Name, Verdicts: s.IsMap, Interval: s.Interval, Dynamic: s.Dynamic, Timeout: s.Timeout, Size: s.Size}
	if like == nil {
		out.Key = []Type{{kind: s.KeyType}}
		return out, nil
	}
	out.Key = like.Key
	if wants := like.keyType(); !s.IsMap && s.KeyType.GetNFTMagic() != wants.GetNFTMagic() {
		out.Key = []Type{{kind: nftables.SetDatatype{Name: "other"}}}
		return out, nil
	}
	if s.Dynamic {
		return out, nil
	}
	list, err := c.nl.GetSetElements(s)
	if err != nil {
		return nil, err
	}
	out.Elements = make([]Element, 0, len(list))
	for _, e := range list {
		out.Elements = append(out.Elements, elementOf(e, s.IsMap))
	}
	return out, nil
}

func elementOf(e nftables.SetElement, verdict bool) Element {
	out := Element{Key: string(appendPadded(nil, e.Key)), Comment: e.Comment}
	if len(e.KeyEnd) > 0 {
		out.End = string(appendPadded(nil, e.KeyEnd))
	}
	if verdict { // the library leaves it encoded
		d, err := netlink.NewAttributeDecoder(e.Val)
		for err == nil && d.Next() {
			switch d.Type() {
			case unix.NFTA_VERDICT_CODE:
				out.Verdict.Kind = expr.VerdictKind(int32(binary.BigEndian.Uint32(d.Bytes())))
			case unix.NFTA_VERDICT_CHAIN:
				out.Verdict.Chain = d.String()
			}
		}
	}
	return out
}

// A Counter is what an element of a dynamic set counted.
type Counter struct {
	Key            string
	Packets, Bytes uint64
}

// Counters reads what a dynamic set counted, of each element. A set that is not there has
// counted nothing.
func (c *Conn) Counters(t *Table, set *Set) ([]Counter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.elements(t, set, "read counters")
	if err != nil {
		return nil, err
	}
	var out []Counter
	for _, e := range list {
		if e.Counter != nil {
			out = append(out, Counter{Key: string(appendPadded(nil, e.Key)), Packets: e.Counter.Packets, Bytes: e.Counter.Bytes})
		}
	}
	return out, nil
}

// Counter reads what a dynamic set counted of one key, in a time that does not grow with their
// number. A set or an element that is not there has counted nothing.
func (c *Conn) Counter(t *Table, set *Set, key string) (Counter, error) {
	of := netlink.NewAttributeEncoder()
	of.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
	of.String(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	of.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) error {
		list.Nested(unix.NFTA_LIST_ELEM, func(e *netlink.AttributeEncoder) error {
			e.Nested(unix.NFTA_SET_ELEM_KEY, func(data *netlink.AttributeEncoder) error {
				data.Bytes(unix.NFTA_DATA_VALUE, []byte(key))
				return nil
			})
			return nil
		})
		return nil
	})
	body, err := of.Encode()
	if err != nil {
		return Counter{}, fmt.Errorf("read a counter of set %s: %w", set.Name, err)
	}
	m := netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM, Flags: netlink.Request},
		Data:   append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, body...),
	}
	c.mu.Lock()
	answer, err := c.sock.Execute(m)
	c.mu.Unlock()
	if errors.Is(err, unix.ENOENT) {
		return Counter{Key: key}, nil
	}
	if err != nil {
		return Counter{}, fmt.Errorf("read a counter of set %s: %w", set.Name, err)
	}
	out := Counter{Key: key}
	for _, a := range answer {
		data := a.Data[min(4, len(a.Data)):]
		for _, typ := range []uint16{unix.NFTA_SET_ELEM_LIST_ELEMENTS, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_EXPR, unix.NFTA_EXPR_DATA} {
			data = nested(data, typ)
		}
		if n := nested(data, unix.NFTA_COUNTER_PACKETS); len(n) == 8 {
			out.Packets = binary.BigEndian.Uint64(n)
		}
		if n := nested(data, unix.NFTA_COUNTER_BYTES); len(n) == 8 {
			out.Bytes = binary.BigEndian.Uint64(n)
		}
	}
	return out, nil
}

// nested is one attribute among some; nil where it is not there.
func nested(attributes []byte, typ uint16) []byte {
	d, err := netlink.NewAttributeDecoder(attributes)
	for err == nil && d.Next() {
		if d.Type() == typ {
			return d.Bytes()
		}
	}
	return nil
}

// Left reads how much is left of the life of each element of a dynamic set, by its key, in one
// dump. A set that is not there has none.
func (c *Conn) Left(t *Table, set *Set) (map[string]time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.elements(t, set, "read the lives")
	if err != nil {
		return nil, err
	}
	out := make(map[string]time.Duration, len(list))
	for _, e := range list {
		out[string(appendPadded(nil, e.Key))] = e.Expires
	}
	return out, nil
}

// elements reads the elements of a set; one that is not there has none. The caller has c.mu.
func (c *Conn) elements(t *Table, set *Set, what string) ([]nftables.SetElement, error) {
	b := &batch{c: c.nl, table: &nftables.Table{Family: t.Family, Name: t.Name}}
	list, err := c.nl.GetSetElements(b.set(set))
	if err == nil || errors.Is(err, unix.ENOENT) {
		return list, nil
	}
	return nil, fmt.Errorf("%s of set %s: %w", what, set.Name, err)
}
