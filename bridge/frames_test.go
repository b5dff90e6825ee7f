package bridge

// What the frames that tests send and read are made of.
const (
	wireEtherLength = 14
	wireARPLength   = wireEtherLength + 28
	wireArpRequest  = 1
	wireArpReply    = 2

	wireIPv6Length             = 40
	wireICMPv6                 = 58
	wireNeighbourSolicitation  = 135
	wireNeighbourAdvertisement = 136
	wireSolicited              = 0x40
	wireTargetLinkLayer        = 2
)
