package nft

import (
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// By looks fields up in a map, and does what it says; without an element the rule goes on.
func By(set string, fields ...Field) Statement {
	return Statement{names(fields) + " vmap @" + set,
		append(loadAll(fields), &expr.Lookup{SourceRegister: 1, SetName: set, DestRegister: 0, IsDestRegSet: true})}
}

// AtMost matches as many packets of each element of a dynamic set as a limit allows: rate a
// second, and a first burst. An element ends after life without a packet.
func AtMost(set string, life time.Duration, rate uint64, burst uint32, fields ...Field) Statement {
	return Statement{fmt.Sprintf("update @%s { %s timeout %s limit rate %d/second burst %d packets }", set, names(fields), life, rate, burst),
		append(loadAll(fields), &expr.Dynset{SrcRegKey: 1, SetName: set, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: life,
			Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: expr.LimitTimeSecond, Burst: burst}}})}
}

// To is the verdict of a map's element that goes to a chain.
func To(chain string) Verdict { return Verdict{Kind: expr.VerdictGoto, Chain: chain} }
