package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A Statement is one step of a rule: a match, which ends the rule where it fails, or
// something done.
type Statement struct {
	text string // in nft's language
	do   []expr.Any
}

// String is the statement in nft's language.
func (s Statement) String() string { return s.text }

var Ether = Type{nftables.TypeEtherType, func(b []byte) string {
	switch v := uint16(b[0])<<8 | uint16(b[1]); v {
	case TypeIPv4:
		return "ip"
	case TypeARP:
		return "arp"
	case TypeIPv6:
		return "ip6"
	default:
		return fmt.Sprintf("%#04x", v)
	}
}}

// Is matches packets whose field has that value; see [Key] for values.
func Is(f Field, value any) Statement { return matching(f, "", expr.CmpOpEq, value) }

// IsNot matches packets whose field has another value.
func IsNot(f Field, value any) Statement { return matching(f, "!= ", expr.CmpOpNeq, value) }

func matching(f Field, sign string, op expr.CmpOp, value any) Statement {
	b := bytesOf(value)
	return Statement{f.name + " " + sign + f.typ.format(b), append(f.into(1), &expr.Cmp{Op: op, Register: 1, Data: b})}
}

// Within matches packets whose address lies in a prefix.
func Within(f Field, p netip.Prefix) Statement {
	p = p.Masked()
	return Statement{f.name + " " + p.String(), append(f.Masked(p.Bits()).into(1), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Addr().AsSlice()})}
}

// Between matches packets whose field is a number from first to last.
func Between(f Field, first, last uint16) Statement {
	if first == last {
		return Is(f, first)
	}
	return Statement{fmt.Sprintf("%s %d-%d", f.name, first, last), append(f.into(1),
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: bytesOf(first)}, &expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: bytesOf(last)})}
}

// Without matches packets of whose field, a byte, no bit of mask is set.
func Without(f Field, mask uint8) Statement {
	return Statement{fmt.Sprintf("%s & %#02x == 0", f.name, mask), append(f.into(1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0}})}
}

// Bytes matches packets with those bytes at an offset from the begin of the network header.
func Bytes(offset uint32, want ...byte) Statement {
	return Statement{fmt.Sprintf("@nh,%d,%d %#x", 8*offset, 8*len(want), want), []expr.Any{
		&expr.Payload{OperationType: expr.PayloadLoad, DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want}}}
}

// In matches packets whose fields are an element of a set.
func In(set string, fields ...Field) Statement { return lookup(set, "", false, fields) }

// NotIn matches packets whose fields are none.
func NotIn(set string, fields ...Field) Statement { return lookup(set, "!= ", true, fields) }

func lookup(set, sign string, invert bool, fields []Field) Statement {
	return Statement{names(fields) + " " + sign + "@" + set,
		append(loadAll(fields), &expr.Lookup{SourceRegister: 1, SetName: set, Invert: invert})}
}

// Count adds fields to a dynamic set and counts the packets of each element. Where the set
// is full, the rule ends here.
func Count(set string, fields ...Field) Statement {
	return Statement{"add @" + set + " { " + names(fields) + " counter }",
		append(loadAll(fields), &expr.Dynset{SrcRegKey: 1, SetName: set, Operation: unix.NFT_DYNSET_OP_ADD, Exprs: []expr.Any{&expr.Counter{}}})}
}

// Touch adds fields to a dynamic set, or begins the life of their element anew: what is left
// of it says when the last packet came; see [Conn.Left].
func Touch(set string, life time.Duration, fields ...Field) Statement {
	return Statement{fmt.Sprintf("update @%s { %s timeout %s }", set, names(fields), life),
		append(loadAll(fields), &expr.Dynset{SrcRegKey: 1, SetName: set, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: life})}
}

// Limit matches as many packets as come to the rule within a limit: rate a second, and a first
// burst. It begins anew with the rule.
func Limit(rate uint64, burst uint32) Statement {
	return Statement{fmt.Sprintf("limit rate %d/second burst %d packets", rate, burst),
		[]expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: expr.LimitTimeSecond, Burst: burst}}}
}

// Log copies the first bytes of a packet to a group of nflog.
func Log(group uint16, bytes uint32) Statement {
	return Statement{fmt.Sprintf("log group %d snaplen %d", group, bytes),
		[]expr.Any{&expr.Log{Key: 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_SNAPLEN, Group: group, Snaplen: bytes}}}
}

// Counted counts the packets that come to it.
func Counted() Statement { return Statement{"counter", []expr.Any{&expr.Counter{}}} }

// Counted is how many packets came to the rule's [Counted] statement, of a rule that was read.
func (r Rule) Counted() (packets uint64, counts bool) {
	for _, e := range r.exprs() {
		if c, is := e.(*expr.Counter); is {
			return c.Packets, true
		}
	}
	return 0, false
}

// Accept ends the table's base chain: the packet goes on to those of others.
func Accept() Statement { return verdict("accept", Verdict{Kind: expr.VerdictAccept}) }

// Drop ends the packet.
func Drop() Statement { return verdict("drop", Verdict{Kind: expr.VerdictDrop}) }

// Return goes back to the chain that jumped here.
func Return() Statement { return verdict("return", Verdict{Kind: expr.VerdictReturn}) }

// Jump goes to another chain, and back from its end.
func Jump(chain string) Statement {
	return verdict("jump "+chain, Verdict{Kind: expr.VerdictJump, Chain: chain})
}

// Goto goes to another chain, and not back.
func Goto(chain string) Statement {
	return verdict("goto "+chain, Verdict{Kind: expr.VerdictGoto, Chain: chain})
}

func verdict(text string, v Verdict) Statement {
	return Statement{text, []expr.Any{&expr.Verdict{Kind: v.Kind, Chain: v.Chain}}}
}

// String is the rule in nft's language, without its comment.
func (r Rule) String() string {
	s := make([]string, len(r.Do))
	for i, d := range r.Do {
		s[i] = d.text
	}
	return strings.Join(s, " ")
}

func (r Rule) exprs() (out []expr.Any) {
	for _, d := range r.Do {
		out = append(out, d.do...)
	}
	return out
}
