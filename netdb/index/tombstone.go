package index

import "github.com/ipamd/ipamd/ipam"

// A Tombstone stands for the attempts of a sandbox uid, up to one, of which no allocation may follow.
type Tombstone struct {
	Attempt int64
	Rev     int64
	At      ipam.Stamp
}

// bury sets a sandbox uid's tombstone.
func (x *tables) bury(uid string, stone Tombstone) {
	x.unbury(uid)
	x.tombs[uid] = stone
	x.stones.Set(stone.Rev, uid)
}

func (x *tables) unbury(uid string) {
	x.stones.Delete(x.tombs[uid].Rev)
	delete(x.tombs, uid)
}

// Buried returns the uids of up to most tombstones, the oldest first, as long as they are over.
// For the one caller that changes the index.
func (x *Index) Buried(most int, over func(Tombstone) bool) (uids []string) {
	x.is.stones.Scan(func(_ int64, uid string) bool {
		if len(uids) == most || !over(x.is.tombs[uid]) {
			return false
		}
		uids = append(uids, uid)
		return true
	})
	return uids
}

// Unbury takes tombstones out whose rows are gone.
func (x *Index) Unbury(uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, uid := range uids {
		x.is.unbury(uid)
	}
}
