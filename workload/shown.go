package workload

import "github.com/ipamd/ipamd/ipam"

// ShownByLabel is the label of a lease by which its owner says who shows its workload.
// "kernel" is: no container runtime that ipamd asks has its containers, its namespace and
// its port are all that there is.
const ShownByLabel = "ipamd.dev/shown-by"

// Outlived reports that the machine was booted since the one namespace of such a workload
// was recorded, which no namespace outlives. That its link was not recorded anew says that
// no port of the name came back.
func Outlived(l *ipam.Lease, boot string) bool {
	return ByKernelAlone(l) && l.Plug.Inode != 0 && l.Plug.Boot != "" && boot != "" && !l.Plug.OfBoot(boot)
}

// ByKernelAlone reports that a runtime's silence about a lease's workload says nothing: its
// owner has said so, and it records a namespace or a port, and no container.
func ByKernelAlone(l *ipam.Lease) bool {
	return l.Labels[ShownByLabel] == "kernel" && len(l.Containers) == 0 && (l.Netns != "" || l.HostInterface != "")
}

// EndsByKernel reports that the kernel can show the end of a lease's workload, though nothing of it was
// ever seen: its owner has said that its namespace and its port are all that there is, and both are
// named in this boot. A bind may come when they are gone already, as of a plugin that was killed.
func EndsByKernel(l *ipam.Lease, boot string) bool {
	return ByKernelAlone(l) && l.HostInterface != "" && l.Netns != "" && l.Plug.OfBoot(boot)
}
