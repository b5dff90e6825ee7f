package storm_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ipamd/ipamd/api"
)

// An away is a time in which files of the book are not in their places.
type away struct {
	gone, back moment // behind the last one's going, and before the first one's return
	indexOnly  bool   // the book and its log are there: changes may be acknowledged
}

// fault is what ipamd meets beside kills, the n-th time: another ipamd on its book,
// or its files are away for a while, at times until it is killed.
func (t *trial) fault(r *rand.Rand, n int) {
	t.t.Helper()
	switch {
	case n%3 == 2:
		t.secondDaemon(r)
		return
	case r.IntN(4) == 0:
		return // kills alone
	}
	putBack, indexOnly := t.takeAway(r)
	a := away{gone: t.rec.now(), indexOnly: indexOnly}
	t.world.rest(r, time.Millisecond, 300*time.Millisecond)
	if r.IntN(3) == 0 {
		t.kill()
	}
	a.back = t.rec.now()
	putBack()
	t.aways = append(t.aways, a)
	t.rec.counted(filesAway)
}

// How the trial counts what it is made of, beside kills.
const (
	filesAway  = "files of the book away and back"
	notWritten = "refused: the book cannot be written"
	stepped    = "clock: boottime stepped "
)

// step moves the boot's clock of the next start, one time in two. Forward it shortens
// no rest. Backward it has every address rest anew, and so may the starts behind it:
// as long as nothing is changed, until the uptime is where it was.
func (t *trial) step(r *rand.Rand) {
	by := time.Duration(r.IntN(9)-4) * time.Second
	if by == 0 || r.IntN(2) == 0 {
		return
	}
	t.daemon.step(by)
	if by < 0 {
		t.behind = max(t.behind, t.rec.now()) - by
		t.rec.counted(stepped + "backward")
	} else {
		t.rec.counted(stepped + "forward")
	}
}

// unsure has calls that were refused because the book cannot be written stand for
// calls without an answer where they may have been made: the files went while it was
// committed. Once one was refused for that reason ipamd knows, and until the files
// come back nothing is begun. What is refused for want of the index alone never was.
func unsure(calls []call, aways []away) {
	known := make([]moment, len(aways))
	for i, a := range aways {
		known[i] = never
		for _, c := range calls {
			if c.Refused == api.BookReadonly && a.gone <= c.Answered && c.Answered <= a.back {
				known[i] = min(known[i], c.Answered)
			}
		}
	}
	for i, c := range calls {
		if c.Refused != api.BookReadonly {
			continue
		}
		within := func(a away, from moment) bool { return from <= c.Asked && c.Answered <= a.back }
		sure := false
		for n, a := range aways {
			sure = sure || within(a, known[n]) || a.indexOnly && within(a, a.gone)
		}
		if !sure {
			calls[i].Refused, calls[i].Left, calls[i].Over, calls[i].Answered = "", c.Answered, c.Answered, never
		}
	}
}

// acknowledged names the addresses that were given while the book or its log was
// somewhere else: a start would not find them.
func acknowledged(calls []call, aways []away) (faults []string) {
	for _, c := range calls {
		if c.Verb != allocating || !c.done() || c.Existing {
			continue
		}
		if i := slices.IndexFunc(aways, func(a away) bool { return !a.indexOnly && a.gone <= c.Asked && c.Answered <= a.back }); i >= 0 {
			faults = append(faults, "acknowledged without the book: "+c.String())
		}
	}
	return faults
}

// anewSince says when the rest of every address may have begun anew, one time for each
// such start: from the death of the ipamd before it to its own first answer.
func (t *trial) anewSince(calls []call) (out []span) {
	for _, m := range t.anew {
		s := span{m, never}
		for _, d := range t.deaths {
			if d <= m {
				s.from = d
			}
		}
		for _, c := range calls {
			if !c.lost() && c.Asked >= m {
				s.to = min(s.to, c.Answered)
			}
		}
		out = append(out, s)
	}
	return out
}
