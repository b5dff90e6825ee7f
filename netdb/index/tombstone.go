package index

import "github.com/ipamd/ipamd/ipam"

// A Tombstone records that the attempts of a sandbox uid were cancelled, up to the one with the number
// Attempt. An allocate of one of them that arrives later is refused, for as long as the book's options
// say: a cancel may overtake the allocate that it cancels, and without the tombstone that one would
// reserve an address which nobody uses. A uid has one tombstone at most.
type Tombstone struct {
	Attempt int64
	Rev     int64      // of the change that recorded it
	At      ipam.Stamp // when that was
}

// setTombstone puts a tombstone in the place of the one that the sandbox uid has, if any.
func (x *tables) setTombstone(uid string, stone Tombstone) {
	x.dropTombstone(uid)
	x.tombstoneByUID[uid] = stone
	x.tombstoneUIDByRev.Set(stone.Rev, uid)
}

func (x *tables) dropTombstone(uid string) {
	x.tombstoneUIDByRev.Delete(x.tombstoneByUID[uid].Rev)
	delete(x.tombstoneByUID, uid)
}

// TombstonesOver returns the sandbox uids of up to most tombstones, the oldest first, and stops at the
// first one of which over says that its time is not over. For the one caller that changes the index.
func (x *Index) TombstonesOver(most int, over func(Tombstone) bool) (uids []string) {
	x.tables.tombstoneUIDByRev.Scan(func(_ int64, uid string) bool {
		if len(uids) == most || !over(x.tables.tombstoneByUID[uid]) {
			return false
		}
		uids = append(uids, uid)
		return true
	})
	return uids
}

// DropTombstones removes the tombstones of sandbox uids, once the book's table does not have them any
// more.
func (x *Index) DropTombstones(uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, uid := range uids {
		x.tables.dropTombstone(uid)
	}
}
