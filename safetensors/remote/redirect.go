package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// ErrRedirect is the error of a redirection that is not followed: trying again
// is in vain. Its message says from where to where, and why not.
var ErrRedirect = errors.New("redirection refused")

// mostRedirects is how many redirections are followed one after the other.
const mostRedirects = 10

// CheckRedirect is a policy for http.Client that refuses with ErrRedirect what
// never leads to a file: another scheme than http and https, a way from https to
// http, a circle, and more than ten redirections. It is that of Open where
// Options.Client has none of its own.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	from, to := via[len(via)-1].URL, req.URL
	why := ""
	switch {
	case to.Scheme != "http" && to.Scheme != "https":
		why = "expected http or https"
	case to.Host == "":
		why = "no host is named"
	case from.Scheme == "https" && to.Scheme == "http":
		why = "http is not as safe as the https before"
	case visited(to, via):
		why = "they are a circle"
	case len(via) > mostRedirects:
		why = fmt.Sprintf("there were %d before", mostRedirects)
	default:
		return nil
	}
	return refused(plain(from), plain(to), why)
}

// CheckLocation refuses with ErrRedirect an answer that says that a file lies
// elsewhere and not where: net/http hands it on like any other.
func CheckLocation(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if resp.Header.Get("Location") == "" {
			return Refused(resp, "status "+resp.Status+" comes without a Location")
		}
	}
	return nil
}

// Refused is the ErrRedirect of an answer that is not followed, which says from
// where to where it leads, and why it is not.
func Refused(resp *http.Response, why string) error {
	to := "nowhere"
	if u, err := resp.Location(); err == nil {
		to = plain(u)
	}
	return refused(plain(resp.Request.URL), to, why)
}

func refused(from, to, why string) error {
	return fmt.Errorf("%w: from %s to %s: %s", ErrRedirect, from, to, why)
}

func visited(to *url.URL, via []*http.Request) bool {
	for _, r := range via {
		if r.URL.String() == to.String() {
			return true
		}
	}
	return false
}

// plain is an address without what may be secret, and not longer than a line.
func plain(u *url.URL) string {
	const most = 200
	s := (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path}).String()
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
