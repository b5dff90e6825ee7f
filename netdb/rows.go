package netdb

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// key is the address as 16 bytes that sort as numbers do. Text does not:
// 10.8.64.10 comes before 10.8.64.2.
func key(a netip.Addr) []byte {
	k := a.As16()
	return k[:]
}

// What a lease is, and what may change of it: never its address or its pool, and
// its id only when the address is given again.
const (
	fixedColumns = `ip, address, pool_uid, id, prefix_length, last_ip`
	otherColumns = `state, sandbox, uid, interface, attempt, rev,
	created_wall, created_boot, created_boot_id, since_wall, since_boot, since_boot_id,
	bind_within, containers, netns, host_interface, mac, plug, labels, evidence, reason, cut, hold, conflict`
	leaseColumns = fixedColumns + `, ` + otherColumns
)

// The parameters have no numbers, which SQLite would keep as names and the
// driver look up, each at every call.
const (
	insertLease = `INSERT INTO leases (` + leaseColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	// Not to set what stays the same spares the pages of its index.
	updateLease  = `UPDATE leases SET (` + otherColumns + `) = (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)` + asItWasSeen
	replaceLease = `UPDATE leases SET (id, ` + otherColumns + `) = (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)` + asItWasSeen
	deleteLease  = `DELETE FROM leases` + asItWasSeen

	// The fence: a row is changed or removed only as the caller saw it.
	asItWasSeen = ` WHERE ip = ? AND id = ? AND rev = ?`

	changeColumns = `rev, wall, boottime, boot_id, subject, address, lease_id, pool_uid, pool, sandbox, uid, interface, attempt,
		from_state, to_state, actor, peer, reason, note, evidence`
	insertChange = `INSERT INTO changes (` + changeColumns + `, row_sum, uptime)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
)

func leaseRow(l *ipam.Lease) []any {
	var bits, last any
	if l.PrefixLen != 0 {
		bits, last = int64(l.PrefixLen), key(l.Range().To)
	}
	return append([]any{key(l.Addr), l.Text(), l.PoolUID, l.ID, bits, last}, otherValues(l)...)
}

// otherValues is the values of otherColumns.
func otherValues(l *ipam.Lease) []any {
	return []any{string(l.State), l.Sandbox, l.UID, l.Interface, l.Attempt, l.Rev,
		l.Created.Wall.UnixNano(), int64(l.Created.Boottime), l.Created.BootID,
		l.Since.Wall.UnixNano(), int64(l.Since.Boottime), l.Since.BootID,
		int64(l.BindWithin), encode(l.Containers, len(l.Containers)), l.Netns, l.HostInterface, l.MAC, plugText(l.Plug),
		encode(l.Labels, len(l.Labels)), string(l.Evidence), l.Reason, string(l.Cut), l.Hold, string(l.Conflict)}
}

// rowSum is a checksum of the whole row, which the change that made it records: what
// is edited or broken in any column shows. What is NULL does not count: the columns of a
// delegated prefix came later. It is 0 for no row.
func rowSum(l *ipam.Lease) int64 {
	if l == nil {
		return 0
	}
	h := crc64.New(sumTable)
	var buf []byte
	for _, v := range leaseRow(l) {
		switch v := v.(type) {
		case nil:
			continue
		case string:
			buf = append(append(buf[:0], v...), 0)
		case []byte:
			buf = append(append(buf[:0], v...), 0)
		case int64:
			buf = binary.BigEndian.AppendUint64(buf[:0], uint64(v))
		}
		h.Write(buf) // never fails
	}
	return int64(h.Sum64())
}

var sumTable = crc64.MakeTable(crc64.ECMA)

// encode writes v as JSON, or as nothing when it is empty.
func encode(v any, n int) string {
	if n == 0 {
		return ""
	}
	return string(asJSON(v))
}

// asJSON writes what always marshals: numbers, texts, addresses and times, and maps and slices of them.
func asJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func plugText(p ipam.Plug) string {
	if p == (ipam.Plug{}) {
		return ""
	}
	return encode(p, 1)
}

// fenceOf is the values of asItWasSeen.
func fenceOf(l *ipam.Lease) []any { return []any{key(l.Addr), l.ID, l.Rev} }

// ranges returns each delegated prefix that the row may mean.
func (n naming) ranges() (out []ipam.Range) {
	if a, bits, err := ipam.ParseText(n.text); err == nil && bits != 0 {
		out = append(out, ipam.RangeOf(a, bits))
	}
	for _, a := range n.addrs() {
		if p, err := a.Prefix(int(n.bits.Int64)); n.bits.Int64 > 0 && err == nil {
			out = append(out, ranges.Of(p))
		}
		if len(n.last) == 16 {
			last := netip.AddrFrom16([16]byte(n.last)).Unmap()
			if last.BitLen() == a.BitLen() && a.Less(last) {
				out = append(out, ranges.Between(a, last))
			}
		}
	}
	return out
}

// means returns what the row may be of, the largest ranges first.
func (n naming) means() []ipam.Range {
	out := n.ranges()
	for _, a := range n.addrs() {
		out = append(out, ranges.Between(a, a))
	}
	return out
}

// A naming is the two ways in which a row says its address.
type naming struct {
	ip   []byte
	text string
	bits sql.NullInt64
	last []byte
}

// addrs returns each address that the row may mean. A row that contradicts
// itself means two.
func (n naming) addrs() []netip.Addr {
	var out []netip.Addr
	if a, _, err := ipam.ParseText(n.text); err == nil {
		out = append(out, a.Unmap().WithZone(""))
	}
	if len(n.ip) == 16 {
		if a := netip.AddrFrom16([16]byte(n.ip)).Unmap(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// scanLease reads one row. How it names its address comes back even when the
// rest cannot be read.
func scanLease(s sqlite.Scanner) (l *ipam.Lease, n naming, err error) {
	l = new(ipam.Lease)
	var (
		createdWall, createdBoot, sinceWall    int64
		sinceBoot, bindWithin                  int64
		containers, labels, evidence, conflict string
		plug                                   string
	)
	err = s.Scan(&n.ip, &n.text, &l.PoolUID, &l.ID, &n.bits, &n.last, (*string)(&l.State), &l.Sandbox, &l.UID, &l.Interface, &l.Attempt, &l.Rev,
		&createdWall, &createdBoot, &l.Created.BootID, &sinceWall, &sinceBoot, &l.Since.BootID,
		&bindWithin, &containers, &l.Netns, &l.HostInterface, &l.MAC, &plug, &labels, &evidence, &l.Reason, (*string)(&l.Cut), &l.Hold, &conflict)
	if err != nil {
		return nil, n, err
	}
	l.Created.Wall, l.Created.Boottime = time.Unix(0, createdWall), time.Duration(createdBoot)
	l.Since.Wall, l.Since.Boottime = time.Unix(0, sinceWall), time.Duration(sinceBoot)
	l.BindWithin = time.Duration(bindWithin)
	if l.Addr, l.PrefixLen, err = ipam.ParseText(n.text); err != nil {
		return nil, n, fmt.Errorf("%q is no address", n.text)
	}
	if plain := ipam.TextOf(l.Addr.Unmap().WithZone(""), l.PrefixLen); plain != n.text {
		return nil, n, fmt.Errorf("address %q is not spelled %s", n.text, plain)
	}
	if string(n.ip) != string(key(l.Addr)) {
		return nil, n, fmt.Errorf("ip %x is not %s", n.ip, n.text)
	}
	if int(n.bits.Int64) != l.PrefixLen || (l.PrefixLen != 0) != (n.last != nil) || n.last != nil && string(n.last) != string(key(l.Range().To)) {
		return nil, n, fmt.Errorf("prefix length %d and last address %x are not those of %s", n.bits.Int64, n.last, n.text)
	}
	if !known(l.State) {
		return nil, n, fmt.Errorf("state %q is unknown", l.State)
	}
	if l.Cut != "" && l.Cut != ipam.CutEarly && l.Cut != ipam.CutOwn {
		return nil, n, fmt.Errorf("cut %q is unknown", l.Cut)
	}
	for _, part := range []struct {
		column, text string
		into         any
	}{{"containers", containers, &l.Containers}, {"plug", plug, &l.Plug}, {"labels", labels, &l.Labels},
		{"evidence", evidence, &l.Evidence}, {"conflict", conflict, &l.Conflict}} {
		raw, whole := part.into.(*json.RawMessage)
		if part.text == "" {
			continue
		} else if whole && json.Valid([]byte(part.text)) {
			*raw = json.RawMessage(part.text) // to the byte: the row's sum is of what is stored
		} else if err := json.Unmarshal([]byte(part.text), part.into); err != nil {
			return nil, n, fmt.Errorf("%s: %w", part.column, err)
		}
	}
	l.Cooled = cooledBefore(l)
	return l, n, nil
}

func known(s ipam.State) bool { return slices.Contains(ipam.States(), s) }

// changeRow is the values of insertChange. made is the lease's row behind the change, nil
// when there is none.
func changeRow(c *ipam.Change, made *ipam.Lease, uptime time.Duration) []any {
	return []any{c.Rev, c.At.Wall.UnixNano(), int64(c.At.Boottime), c.At.BootID, string(c.Subject), ipam.TextOf(c.Addr, c.PrefixLen), c.LeaseID,
		c.PoolUID, c.Pool, c.Sandbox, c.UID, c.Interface, c.Attempt, string(c.From), string(c.To),
		string(c.Who.Actor), c.Who.Peer, c.Who.Reason, c.Who.Note, string(c.Evidence), rowSum(made), int64(uptime)}
}

func scanChange(s sqlite.Scanner) (c ipam.Change, err error) {
	err = scanInto(&c, s)
	return c, err
}

// scanInto reads changeColumns.
func scanInto(c *ipam.Change, s sqlite.Scanner) error {
	var is struct {
		addr, evidence string
		wall, boottime int64
	}
	err := s.Scan(&c.Rev, &is.wall, &is.boottime, &c.At.BootID, (*string)(&c.Subject), &is.addr, &c.LeaseID, &c.PoolUID, &c.Pool,
		&c.Sandbox, &c.UID, &c.Interface, &c.Attempt, (*string)(&c.From), (*string)(&c.To),
		(*string)(&c.Who.Actor), &c.Who.Peer, &c.Who.Reason, &c.Who.Note, &is.evidence)
	if err != nil {
		return err
	}
	c.At.Wall, c.At.Boottime = time.Unix(0, is.wall), time.Duration(is.boottime)
	c.Addr, c.PrefixLen, _ = ipam.ParseText(is.addr) // "" unless it is a lease's; a broken one is shown as unknown
	if is.evidence != "" {
		c.Evidence = json.RawMessage(is.evidence)
	}
	return nil
}

const (
	poolColumns = `uid, name, family, generation, prefix, gateway, bridge, spec, spec_hash, state,
		created_wall, created_boot, created_boot_id`
	upsertPool = `INSERT INTO pools (` + poolColumns + `) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)
		ON CONFLICT (uid) DO UPDATE SET (` + poolColumns + `) = (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)`
)

func poolRow(p *ipam.Pool) []any {
	spec, hash := encodeSpec(&p.PoolSpec)
	return []any{p.UID, p.Name, p.Family(), p.Generation, p.Prefix.String(), ipam.AddrText(p.Gateway), p.Bridge,
		spec, hash, p.State, p.Created.Wall.UnixNano(), int64(p.Created.Boottime), p.Created.BootID}
}

func encodeSpec(s *ipam.PoolSpec) (spec, hash string) {
	spec = string(asJSON(s))
	return spec, specHash(spec)
}

func specHash(spec string) string {
	sum := sha256.Sum256([]byte(spec))
	return hex.EncodeToString(sum[:])
}

func scanPool(s sqlite.Scanner) (*ipam.Pool, error) {
	var (
		p                                   ipam.Pool
		name, prefix, gateway, bridge, spec string
		hash                                string
		family                              int
		wall, boot                          int64
	)
	if err := s.Scan(&p.UID, &name, &family, &p.Generation, &prefix, &gateway, &bridge, &spec, &hash, &p.State,
		&wall, &boot, &p.Created.BootID); err != nil {
		return nil, err
	}
	p.Created.Wall, p.Created.Boottime = time.Unix(0, wall), time.Duration(boot)
	// No index covers these bytes, so SQLite's own check would pass a flipped
	// one, and addresses of another prefix would be handed out.
	if sum := specHash(spec); sum != hash {
		return nil, fmt.Errorf("%s: what describes it has the sum %.12s…, not %.12s…", name, sum, hash)
	}
	return &p, json.Unmarshal([]byte(spec), &p.PoolSpec)
}

const (
	readPoolNames  = `SELECT name, family, generation, configured FROM pool_names`
	upsertPoolName = `INSERT INTO pool_names (name, family, generation, configured) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (name, family) DO UPDATE SET (generation, configured) = (?3, ?4)`
)

func poolNameRow(n *ipam.PoolName) []any { return []any{n.Name, n.Family, n.Generation, n.Configured} }

func scanPoolName(s sqlite.Scanner) (n ipam.PoolName, err error) {
	err = s.Scan(&n.Name, &n.Family, &n.Generation, &n.Configured)
	return n, err
}

const (
	withheldColumns = `ip, address, pool_uid, pool, lease_id, state, sandbox, uid, interface, rev,
		since_wall, since_boot, since_boot_id, evidence, hold, ` + withheldPlumbing
	withheldPlumbing = `bridge, host_interface, netns, plug`
	insertWithheld   = `INSERT INTO withheld (` + withheldColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
)

func withheldRow(w *ipam.Withheld) []any {
	return []any{key(w.Addr), ipam.TextOf(w.Addr, w.PrefixLen), w.PoolUID, w.Pool, w.LeaseID, string(w.State), w.Sandbox, w.UID, w.Interface, w.Rev,
		w.Since.Wall.UnixNano(), int64(w.Since.Boottime), w.Since.BootID, string(w.Evidence), w.Hold,
		w.Bridge, w.HostInterface, w.Netns, plugText(w.Plug)}
}

// scanWithheld reads one row. Its address is zero when the row contradicts itself.
func scanWithheld(s sqlite.Scanner) (w ipam.Withheld, n naming, err error) {
	var evidence, plug string
	var wall, boot int64
	if err := s.Scan(&n.ip, &n.text, &w.PoolUID, &w.Pool, &w.LeaseID, (*string)(&w.State), &w.Sandbox, &w.UID, &w.Interface,
		&w.Rev, &wall, &boot, &w.Since.BootID, &evidence, &w.Hold, &w.Bridge, &w.HostInterface, &w.Netns, &plug); err != nil {
		return w, n, err
	}
	if plug != "" && json.Unmarshal([]byte(plug), &w.Plug) != nil {
		w.Plug = ipam.Plug{} // it is not known
	}
	w.Since.Wall, w.Since.Boottime = time.Unix(0, wall), time.Duration(boot)
	if evidence != "" {
		w.Evidence = json.RawMessage(evidence)
	}
	if named := n.addrs(); len(named) == 1 {
		w.Addr = named[0]
		_, w.PrefixLen, _ = ipam.ParseText(n.text)
	}
	return w, n, nil
}
