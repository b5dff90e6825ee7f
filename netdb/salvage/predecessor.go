package salvage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// ErrNotPredecessor means that a file is not one of the program that kept the addresses
// before ipamd.
var ErrNotPredecessor = errors.New("not the predecessor's file")

// predecessorColumns are those of its tables that matter here.
var predecessorColumns = map[string][]string{
	"ips":        {"ip", "subnet", "reserved", "released_at"},
	"subnets":    {"cidr", "parent", "identifier", "reserved"},
	"interfaces": {"name", "reserved"},
}

// Predecessor reads the file of the program that kept the addresses before ipamd. It has no owners. An address that it holds is a bound
// lease without a sandbox, one that it released cools, and an interface name has no holder.
// A row that cannot be understood is in Problems, by its table, its key and the field; its
// address, where that can be read, is held. A file without its tables is refused.
func Predecessor(path string) (s Found, err error) {
	if err := onCopy(context.Background(), "read", path, []string{"", bookfile.LogEnd}, s.predecessor); err != nil {
		return Found{}, err
	}
	return s, nil
}

func (s *Found) predecessor(ctx context.Context, _, copied string) error {
	if is, err := sqlite.IsFile(copied); err != nil || !is {
		return fmt.Errorf("%w: it is no SQLite database", ErrNotPredecessor)
	}
	c, err := sqlite.OpenCopy(ctx, copied)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := errors.Join(isPredecessors(ctx, c.Conn), wholeCopy(ctx, c.Conn)); err != nil {
		return err
	}
	s.Ended = make(map[string]bool)
	err = errors.Join(sqlite.Each(ctx, c, `SELECT ip, subnet, reserved, released_at FROM ips`, (&ips{s, make(map[netip.Addr]*ipam.Lease)}).read),
		sqlite.Each(ctx, c, `SELECT cidr, parent, identifier, reserved FROM subnets`, s.readSubnet),
		sqlite.Each(ctx, c, `SELECT name, reserved FROM interfaces`, s.readInterface))
	slices.SortFunc(s.Leases, func(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) })
	return err
}

// isPredecessors refuses what has not its tables: a view may never end.
func isPredecessors(ctx context.Context, q sqlite.Querier) error {
	for _, table := range []string{"ips", "subnets", "interfaces"} {
		var kind string
		err := q.QueryRowContext(ctx, `SELECT type FROM sqlite_schema WHERE name = ?`, table).Scan(&kind)
		if errors.Is(err, sql.ErrNoRows) || err == nil && kind != "table" {
			return fmt.Errorf("%w: it has no table %s", ErrNotPredecessor, table)
		} else if err != nil {
			return fmt.Errorf("%w: its schema cannot be read: %w", netdb.ErrDamaged, err)
		}
		has := make(map[string]bool)
		if err := sqlite.Each(ctx, q, `SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0`, func(sc sqlite.Scanner) error {
			var name string
			err := sc.Scan(&name)
			has[name] = true
			return err
		}, table); err != nil {
			return err
		}
		for _, column := range predecessorColumns[table] {
			if !has[column] {
				return fmt.Errorf("%w: its table %s has no column %s", ErrNotPredecessor, table, column)
			}
		}
	}
	return nil
}

// wholeCopy refuses a file of which a page is broken: what is in it may be held.
func wholeCopy(ctx context.Context, q sqlite.Querier) error {
	var verdict string
	err := q.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = errors.New(verdict)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", netdb.ErrDamaged, err)
	}
	return nil
}

// badRow notes what is wrong with a field of a row.
func (s *Found) badRow(table string, key any, field, format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf("table %s, row %s, field %s: ", table, quoted(key), field)+fmt.Sprintf(format, args...))
}

// quoted is a value of a file as a person can read it.
func quoted(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return fmt.Sprintf("%.80q", v)
	case string:
		return fmt.Sprintf("%.80q", v)
	}
	return fmt.Sprint(v)
}

// ips reads the rows of ips.
type ips struct {
	*Found
	at map[netip.Addr]*ipam.Lease
}

// read reads a row. What it says of an address and cannot be understood counts as
// held: nothing moves towards free by what cannot be read.
func (s *ips) read(sc sqlite.Scanner) error {
	var ip, subnet, reserved, released any
	if err := sc.Scan(&ip, &subnet, &reserved, &released); err != nil {
		return err
	}
	a, plain, ok := addressIn(ip)
	if !ok {
		s.badRow("ips", ip, "ip", "no address can be read in it: none is held for it")
		return nil
	}
	if twin := s.at[a]; twin != nil { // 10.8.64.2 has one spelling, an IPv6 address many
		twin.State, twin.Since = ipam.Bound, ipam.Stamp{}
		s.badRow("ips", ip, "ip", "%s is there twice: it counts as held", a)
		return nil
	}
	l := &ipam.Lease{Addr: a, State: ipam.Bound, Rev: int64(len(s.Leases) + 1)}
	s.Leases, s.at[a] = append(s.Leases, l), l
	if !plain {
		s.badRow("ips", ip, "ip", "it is spelled otherwise than %s: it counts as held", a)
		return nil
	}
	within, _ := subnet.(string)
	if p, err := netip.ParsePrefix(within); err != nil {
		s.badRow("ips", ip, "subnet", "%s is no prefix", quoted(subnet))
	} else if !p.Contains(a) {
		s.badRow("ips", ip, "subnet", "%s does not contain the address", quoted(subnet))
	}
	held, ok := flag(reserved)
	if !ok {
		s.badRow("ips", ip, "reserved", "%s is neither 0 nor 1: it counts as held", quoted(reserved))
		return nil
	}
	at, ok := released.(int64)
	switch {
	case released == nil && !held:
		s.badRow("ips", ip, "released_at", "it is NULL, and reserved is 0: it counts as held")
	case released == nil:
	case !ok || at <= 0 || at > 1<<40:
		s.badRow("ips", ip, "released_at", "%s is no time in seconds since 1970: it counts as held", quoted(released))
	case held:
		s.badRow("ips", ip, "released_at", "it is set, and reserved is 1: it counts as held")
	default:
		l.State, l.Since.Wall, l.Rev = ipam.Cooling, time.Unix(at, 0), at<<16+l.Rev // in the order of their release
	}
	return nil
}

// addressIn finds the address that a field means. One that is not plain is in other bytes than a
// text of it alone: with blanks, a prefix length or a zone, within IPv6, or as a BLOB.
func addressIn(v any) (a netip.Addr, plain, ok bool) {
	text, plain := v.(string)
	raw, _ := v.([]byte)
	if !plain {
		text = string(raw)
	}
	bare, _, _ := strings.Cut(strings.TrimSpace(text), "/")
	a, err := netip.ParseAddr(bare)
	if err != nil {
		if a, ok = netip.AddrFromSlice(raw); !ok {
			return a, false, false
		}
	}
	is := a.Unmap().WithZone("")
	return is, plain && bare == text && is == a, true
}

func flag(v any) (is, ok bool) {
	switch v := v.(type) {
	case int64:
		return v == 1, v == 0 || v == 1
	case bool:
		return v, true
	}
	return false, false
}

// readSubnet reads a row of subnets. The pools are the configuration's, so it is only
// reported.
func (s *Found) readSubnet(sc sqlite.Scanner) error {
	var cidr, parent, identifier, reserved any
	if err := sc.Scan(&cidr, &parent, &identifier, &reserved); err != nil {
		return err
	}
	text, _ := cidr.(string)
	p, err := netip.ParsePrefix(text)
	if err != nil || p != p.Masked() {
		s.badRow("subnets", cidr, "cidr", "%s is no prefix", quoted(cidr))
		return nil
	}
	if text, _ := parent.(string); parent != nil {
		if over, err := netip.ParsePrefix(text); err != nil || !over.Overlaps(p) || over.Bits() > p.Bits() {
			s.badRow("subnets", cidr, "parent", "%s is no prefix that contains it", quoted(parent))
		}
	}
	held, ok := flag(reserved)
	switch {
	case !ok:
		s.badRow("subnets", cidr, "reserved", "%s is neither 0 nor 1: it counts as held", quoted(reserved))
	case !held:
		return nil
	}
	if s.Subnets == nil {
		s.Subnets = make(map[netip.Prefix]string)
	}
	name, _ := identifier.(string)
	s.Subnets[p] = name
	return nil
}

// readInterface reads a row of interfaces.
func (s *Found) readInterface(sc sqlite.Scanner) error {
	var name, reserved any
	if err := sc.Scan(&name, &reserved); err != nil {
		return err
	}
	text, _ := name.(string)
	if !ipam.IsInterface(text) {
		s.badRow("interfaces", name, "name", "%s is no interface name of 1 to %d bytes", quoted(name), ipam.MaxInterface)
		return nil
	}
	if held, ok := flag(reserved); !ok {
		s.badRow("interfaces", name, "reserved", "%s is neither 0 nor 1: it counts as held", quoted(reserved))
	} else if !held {
		return nil
	}
	s.HostNames = append(s.HostNames, ipam.HostName{Name: text})
	return nil
}
