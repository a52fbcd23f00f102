// Package ui drives the status page in a real headless Chromium, against the
// real program with the local driver, in a mount namespace of its own. It is a
// module of its own, so that the program never depends on what drives browsers.
//
// It needs root, CSI_VOLMGR=path of the program, and Debian's chromium.
package ui
