// Package registration finds CSI drivers by the sockets that they, or their
// node-driver-registrar, create in a directory, and reports when each driver is
// up or down.
//
// It owns the directory watch (level-triggered: every event leads to a scan), the
// identity and generation of sockets, the handshake of the plugin registration
// protocol (k8s.io/kubelet, pluginregistration/v1), which socket has a driver
// name, and why a socket's driver is not up.
//
// It makes no CSI calls and does not know volumes. The [Handler] finds out whether
// a driver answers.
//
// A socket is identified by path, inode and time of birth, because file systems
// reuse inode numbers at once. A new socket at the same path is a new generation;
// the old one goes down before the new one comes up. As with the kubelet, removing
// a registration socket takes its driver down, but a registrar that dies without
// removing it does not. Removals of the driver's volumes then wait, visibly, until
// the driver registers again.
//
// If two sockets register one driver name, the first keeps it while its process
// runs. The second waits, is reported, and takes over when the first goes. It also
// takes over when no process listens on the first one's CSI socket but one listens
// on its own: a registrar may outlive its driver, and must not keep the name from a
// working driver.
//
// A socket is used only if the kernel says that root or this process's user listens
// on it, because the process that registers a driver's name receives its secrets.
//
// A registrar that receives a refusal exits, although a kubelet that watches the same
// directory may accept the driver. So if there is such a kubelet, no registrar is
// sent a notification. Otherwise only faults that no retry can end are refused: type,
// version and name. All others are retried.
package registration
