package resolve

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// checkTrustBundle checks a bundle's name and certificates. The name of a signer's
// bundle begins with the signer's name, "/" replaced by ":"; no other bundle's does.
func checkTrustBundle(o *certificatesv1.ClusterTrustBundle) []Fault {
	var faults []Fault
	own, want := o.Name, "a DNS subdomain without ':', since spec.signerName is empty"
	if signer := o.Spec.SignerName; signer != "" {
		prefix := strings.ReplaceAll(signer, "/", ":") + ":"
		rest, ok := strings.CutPrefix(o.Name, prefix)
		if !ok {
			faults = append(faults, Fault{"metadata.name", o.Name, "one that begins with " + prefix + ", after spec.signerName"})
		}
		own, want = rest, "a DNS subdomain after the signer's"
		if domain, path, ok := strings.Cut(signer, "/"); !ok || path == "" || !isSubdomain(domain) ||
			len(checkText("", signer, maxSigner)) > 0 {
			faults = append(faults, Fault{"spec.signerName", signer, "DOMAIN/NAME"})
		}
	}
	if len(faults) == 0 && !isSubdomain(own) {
		faults = append(faults, Fault{"metadata.name", o.Name, want})
	}
	if _, err := content.Anchors(o.Spec.TrustBundle); err != nil {
		faults = append(faults, Fault{"spec.trustBundle", "invalid data: " + err.Error(), "certificates in PEM"})
	}
	return faults
}

// maxSigner is the API server's limit on the name of a signer, in bytes.
const maxSigner = 571

func isSubdomain(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

func (o objects) TrustBundles() ([]*certificatesv1.ClusterTrustBundle, error) {
	key := Key{Kind: KindTrustBundles}
	list, ok := o.r.objects.Get(key).(*certificatesv1.ClusterTrustBundleList)
	// Checked even if some bundles are known, since there may be more.
	if err := o.unread(key); err != nil || !ok {
		return nil, err
	}
	var all []*certificatesv1.ClusterTrustBundle
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}
