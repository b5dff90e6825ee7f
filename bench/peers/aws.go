package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/aws/amazon-vpc-cni-k8s/pkg/ipamd/datastore"
	"github.com/aws/amazon-vpc-cni-k8s/pkg/utils/logger"
)

// An aws is the datastore of the AWS VPC CNI's daemon with its checkpoint: all
// leases as JSON in a new file, synced and renamed over the old one, with each
// change. Its gRPC server is left out.
type aws struct {
	store *datastore.DataStore
}

// What EC2 attaches to a network interface: one of it, and prefixes of 16
// addresses, as many as are taken and some to spare.
const (
	interfaceID = "eni-1"
	blockBits   = 28
	spare       = 256 // bench/peer_list.go has how many addresses that is
)

// openAWS has the datastore read a checkpoint of the taken addresses.
//
// Without a pod's name the reader does not look for its link. The cooldown is
// set to nothing by the environment that bench gives this process.
func openAWS(_ context.Context, dir string, prefix netip.Prefix, taken int) (store, error) {
	path := filepath.Join(dir, "ipam.json")
	data := datastore.CheckpointData{Version: datastore.CheckpointFormatVersion}
	for i, addr := range takenOf(prefix, taken) {
		data.Allocations = append(data.Allocations, datastore.CheckpointEntry{IPAMKey: key(fmt.Sprintf("taken-%d", i)), IPv4: addr.String()})
	}
	written, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, written, 0o600); err != nil {
		return nil, err
	}
	log := logger.New(&logger.Configuration{LogLevel: "Fatal", LogLocation: "stderr"})
	a := &aws{datastore.NewDataStore(log, datastore.NewJSONFile(path), true, 0)}
	if err := a.store.AddENI(interfaceID, 0, true, false, false, 0, ""); err != nil {
		return nil, err
	}
	block := netip.PrefixFrom(prefix.Masked().Addr(), blockBits)
	for n := (taken+2)/16 + 1 + spare; n > 0 && prefix.Contains(block.Addr()); n-- {
		if err := a.store.AddIPv4CidrToStore(interfaceID, *ipNet(block), true); err != nil {
			return nil, err
		}
		last := block.Addr().As4()
		last[3] |= 15
		block = netip.PrefixFrom(netip.AddrFrom4(last).Next(), blockBits)
	}
	if err := a.store.ReadBackingStore(false); err != nil {
		return nil, err
	}
	if got := len(a.store.AllocatedIPs()); got != taken {
		return nil, fmt.Errorf("AWS's datastore read %d of %d leases", got, taken)
	}
	return a, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func key(sandbox string) datastore.IPAMKey {
	return datastore.IPAMKey{NetworkName: "aws-cni", ContainerID: sandbox, IfName: "eth0"}
}

func (a *aws) allocate(_ context.Context, sandbox string) (netip.Addr, error) {
	ip, _, _, err := a.store.AssignPodIPv4Address(key(sandbox), datastore.IPAMMetadata{})
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(ip)
}

func (a *aws) release(_ context.Context, sandbox string, _ netip.Addr) error {
	_, _, _, _, _, err := a.store.UnassignPodIPAddress(key(sandbox))
	return err
}

func (a *aws) close() error { return nil }
