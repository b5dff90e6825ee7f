package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A newsSocket hears of IPv4 addresses in each namespace behind a bridge, as
// the bridge does, and does nothing else.
type newsSocket struct {
	fd   int
	text []byte
}

// An arrival is when an address was heard of.
type arrival struct {
	at  time.Time
	err error
}

func listenNews(space netns.NsHandle) (*newsSocket, error) {
	s := &newsSocket{text: make([]byte, 64<<10)}
	if err := inside(space, func() (err error) {
		s.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	}); err != nil {
		return nil, fmt.Errorf("listen to the kernel's news: %w", err)
	}
	most := unix.NsecToTimeval(int64(patience))
	if err := errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1),
		unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &most),
		unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.RTNLGRP_IPV4_IFADDR),
	); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to the kernel's news: %w", err), s.close())
	}
	return s, nil
}

func (s *newsSocket) close() error { return unix.Close(s.fd) }

// await begins to wait for an address, which must come, or patience ends it.
// One answer is sent and must be taken before the next call. On nil it waits
// for nothing and returns nil.
func (s *newsSocket) await(addr netip.Addr) <-chan arrival {
	if s == nil {
		return nil
	}
	heard := make(chan arrival, 1)
	go func() { // who asked takes the answer
		err := s.hear(addr)
		heard <- arrival{time.Now(), err}
	}()
	return heard
}

// hear returns once an address is said to be new.
func (s *newsSocket) hear(addr netip.Addr) error {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.text, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("hear of %s: %w", addr, err)
		}
		messages, err := syscall.ParseNetlinkMessage(s.text[:n])
		if err != nil {
			return fmt.Errorf("hear of %s: %w", addr, err)
		}
		for _, m := range messages {
			if m.Header.Type == unix.RTM_NEWADDR && bytes.Contains(m.Data, addr.AsSlice()) {
				return nil
			}
		}
	}
}
