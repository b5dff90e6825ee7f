package poolmap

import (
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// StateText is a state's word in its own colour.
func StateText(p *term.Page, s api.State) string {
	for _, k := range kinds() {
		if k.word == string(s) {
			return p.SGR(k.sgr, k.word)
		}
	}
	return term.Sentence(string(s))
}

// A kind is what an address can be, for the eye: the states of a lease, and
// the reasons why an address is never handed out.
type kind struct {
	letter byte
	word   string
	sgr    string
}

// kinds lists every kind in the order of the legend.
func kinds() []kind {
	return []kind{
		{free, string(api.Free), "2"},
		{'r', string(api.Reserved), "33"},
		{'B', string(api.Bound), "32"},
		{'p', string(api.Paused), "34"},
		{'x', string(api.Releasing), "35"},
		{'c', string(api.Cooling), "36"},
		{'Q', string(api.Quarantined), "1;31"},
		{kept, "kept", "34"},
		{gateway, "gateway", "2"},
		{unusable, "not usable", "2"},
		{excluded, "excluded", "2"},
		{unknown, "unknown", "1;33"},
	}
}

// The letters of addresses without a lease, and of a lease whose state is
// newer than this program.
const (
	free     = '.'
	kept     = 'k' // for its sandbox, which has no lease of it
	gateway  = 'G'
	unusable = '#'
	excluded = '-'
	unknown  = '?'
)

// letter is the letter of a lease's state.
func letter(s api.State) byte {
	for _, k := range kinds() {
		if k.word == string(s) {
			return k.letter
		}
	}
	return unknown
}

// States lists the states that a lease can be in.
func States() []string {
	return []string{
		string(api.Reserved), string(api.Bound), string(api.Paused),
		string(api.Releasing), string(api.Cooling), string(api.Quarantined),
	}
}

// kindOf is the kind with a letter.
func kindOf(letter byte) kind {
	for _, k := range kinds() {
		if k.letter == letter {
			return k
		}
	}
	return kind{letter: unknown, word: "unknown"}
}
