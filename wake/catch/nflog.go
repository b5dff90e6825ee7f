package catch

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/nft"
)

// Of linux/netfilter/nfnetlink_log.h.
const (
	subsystem     = 4 // NFNL_SUBSYS_ULOG
	msgPacket     = subsystem << 8
	msgConfig     = subsystem<<8 | 1
	attrCommand   = 1
	attrMode      = 2
	attrThreshold = 5
	commandBind   = 1
	copyPacket    = 2
	attrPayload   = 9
)

// A reader receives what the kernel copies to a group of nflog.
type reader struct{ conn nft.Inbox }

// listen binds the group in the network namespace of the calling thread.
func listen(group uint16) (*reader, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to nflog: %w", err)
	}
	mode := make([]byte, 6) // how much, then how
	binary.BigEndian.PutUint32(mode, snap)
	mode[4] = copyPacket
	for _, a := range []netlink.Attribute{
		{Type: attrCommand, Data: []byte{commandBind}},
		{Type: attrMode, Data: mode},
		{Type: attrThreshold, Data: binary.BigEndian.AppendUint32(nil, 1)}, // each at once
	} {
		attrs, err := netlink.MarshalAttributes([]netlink.Attribute{a})
		if err == nil {
			head := append([]byte{unix.AF_UNSPEC, 0}, binary.BigEndian.AppendUint16(nil, group)...)
			_, err = c.Execute(netlink.Message{Header: netlink.Header{Type: msgConfig, Flags: netlink.Request | netlink.Acknowledge}, Data: append(head, attrs...)})
		}
		if err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("bind group %d of nflog: %w", group, err)
		}
	}
	return &reader{nft.Inbox{Conn: c}}, nil
}

// next waits for packets. overrun means that some were lost, see [nft.Inbox.Next].
func (r *reader) next() (frames [][]byte, overrun bool, err error) {
	messages, overrun, err := r.conn.Next()
	if err != nil {
		return nil, false, err
	}
	for _, m := range messages {
		if m.Header.Type == msgPacket {
			frames = append(frames, payload(m.Data))
		}
	}
	return frames, overrun, nil
}

// payload is the packet in a message; nil when there is none that can be read.
func payload(data []byte) []byte {
	if len(data) < 4 {
		return nil
	}
	attrs, err := netlink.UnmarshalAttributes(data[4:])
	if err != nil {
		return nil
	}
	for _, a := range attrs {
		if a.Type == attrPayload {
			return a.Data
		}
	}
	return nil
}

func (r *reader) close() error { return r.conn.Close() }
