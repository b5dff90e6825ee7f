package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// News is one transaction that changed a table.
type News struct {
	Generation uint32
	Process    uint32 // the thread that did it
	Program    string // its name, at most 15 bytes
	Port       uint32 // the address of its socket; see [Conn.Ours]
	Tables     map[string]bool
	Gone       bool // a table was taken away
	// Lost means that news are missing: the tables may have been changed by any program. The
	// other fields are empty.
	Lost bool
}

// A Watch reports what happens to nftables in one namespace, beginning at its Open.
type Watch struct{ c Inbox }

// OpenWatch subscribes to the kernel's news in the namespace of the calling thread.
func OpenWatch() (*Watch, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err == nil {
		err = errors.Join(c.SetReadBuffer(receiveBuffer), c.JoinGroup(unix.NFNLGRP_NFTABLES))
		if err != nil {
			_ = c.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to the news of nftables: %w", err)
	}
	return &Watch{Inbox{Conn: c}}, nil
}

// Close ends a Run that is under way.
func (w *Watch) Close() error { return w.c.Close() }

// Run calls each for every transaction, in order, until ctx ends. The kernel drops news
// that it has no room for: once that is over each is called with Lost, and
// a follower of a table reads it again.
func (w *Watch) Run(ctx context.Context, each func(News)) error {
	defer context.AfterFunc(ctx, func() { _ = w.c.Close() })()
	n := News{Tables: map[string]bool{}}
	for {
		msgs, lost, err := w.c.Next()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the news of nftables: %w", err)
		}
		for _, m := range msgs {
			if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < 4 {
				continue
			}
			if m.Header.Type&0xff != unix.NFT_MSG_NEWGEN {
				// Of every object the first attribute is its table's name.
				if name, ok := attribute(m.Data, unix.NFTA_TABLE_NAME); ok {
					n.Tables[TableID(Family(m.Data[0]), strings.TrimRight(string(name), "\x00"))] = true
				}
				n.Gone = n.Gone || m.Header.Type&0xff == unix.NFT_MSG_DELTABLE
				continue
			}
			n.Port = m.Header.PID
			if b, ok := attribute(m.Data, unix.NFTA_GEN_ID); ok && len(b) == 4 {
				n.Generation = binary.BigEndian.Uint32(b)
			}
			if b, ok := attribute(m.Data, unix.NFTA_GEN_PROC_PID); ok && len(b) == 4 {
				n.Process = binary.BigEndian.Uint32(b)
			}
			if b, ok := attribute(m.Data, unix.NFTA_GEN_PROC_NAME); ok {
				n.Program = strings.TrimRight(string(b), "\x00")
			}
			each(n)
			n = News{Tables: map[string]bool{}}
		}
		if lost {
			n = News{Tables: map[string]bool{}}
			each(News{Lost: true})
		}
	}
}

// TableID is the name by which News has a table.
func TableID(f Family, name string) string { return familyName(f) + " " + name }
