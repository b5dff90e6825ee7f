package nft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/nft"
)

// A socket that overran drops what comes until all was read, and the kernel says so at its beginning
// only: that something was lost is known once nothing more can be lost unsaid.
func TestAnInboxThatOverran(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "nft")
	ns := nstest.New(t)
	var in nft.Inbox
	ns.Do(func() {
		var err error
		if in.Conn, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			t.Fatal(err)
		}
	})
	defer in.Close()
	for _, err := range []error{in.SetReadBuffer(1), in.JoinGroup(unix.NFNLGRP_NFTABLES), in.SetReadDeadline(time.Now().Add(time.Minute))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 20 {
		ns.Exec("nft", fmt.Sprintf("add table bridge t%d", n))
	}
	if messages, lost, err := in.Next(); len(messages) != 0 || lost || err != nil {
		t.Fatalf("the overrun: %d messages, lost %v, %v", len(messages), lost, err)
	}
	ns.Exec("nft", "add table bridge behind")
	for received := 0; ; {
		messages, lost, err := in.Next()
		if err != nil {
			t.Fatalf("behind the overrun, after %d messages: %v", received, err)
		}
		if received += len(messages); lost {
			break
		}
	}
	ns.Exec("nft", "add table bridge last")
	if messages, lost, err := in.Next(); len(messages) == 0 || lost || err != nil {
		t.Errorf("once it was read empty: %d messages, lost %v, %v", len(messages), lost, err)
	}
}
