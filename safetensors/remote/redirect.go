package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// ErrRedirect is the error of a refused redirect. It is permanent. Its message
// contains both addresses and the reason.
var ErrRedirect = errors.New("redirection refused")

// mostRedirects is the maximum number of consecutive redirects.
const mostRedirects = 10

// CheckRedirect is the default policy of Open for redirects, for the field of
// http.Client. It returns ErrRedirect for redirects to a scheme other than http
// and https, for redirects from https to http, for cycles, and after ten
// redirects.
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

// CheckLocation returns an ErrRedirect if resp is a redirect without a Location, which net/http
// returns without an error, and nil otherwise. Programs that send their own requests should call
// it.
func CheckLocation(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if resp.Header.Get("Location") == "" {
			return Refused(resp, "status "+resp.Status+" comes without a Location")
		}
	}
	return nil
}

// Refused returns an ErrRedirect with both addresses of the redirect resp and the reason why, for
// programs with their own rules for redirects.
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

// plain returns an address without its secret parts, truncated to a line.
func plain(u *url.URL) string {
	const most = 200
	s := (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path}).String()
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
