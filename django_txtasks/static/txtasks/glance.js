"use strict";
// Renews the body of the page every few seconds. Not in a hidden tab, not while a control inside has the focus, and
// not while the switch is off, which the browser remembers if it may store something.
{
    const body = document.getElementById("txtasks-glance");
    const key = "txtasks.glance.off";
    let isOff = false;
    try {
        isOff = localStorage.getItem(key) === "yes";
    } catch {
        // the browser stores nothing: the switch counts for this page
    }
    const turn = (off) => {
        isOff = off;
        try {
            localStorage.setItem(key, off ? "yes" : "no");
        } catch {
            // as above
        }
    };
    const showSwitch = () => {
        const label = body.querySelector(".txg-refresh");
        if (!label) return;
        const box = label.querySelector("input");
        label.hidden = false;
        box.checked = !isOff;
        box.addEventListener("change", () => turn(!box.checked));
    };
    const renew = async () => {
        if (isOff || document.hidden || body.contains(document.activeElement)) return;
        const url = new URL(location.href);
        url.searchParams.set("fragment", "1");
        try {
            const answer = await fetch(url, {credentials: "same-origin"});
            if (!answer.ok || answer.redirected || body.contains(document.activeElement)) return;
            body.innerHTML = await answer.text();
            showSwitch();
        } catch {
            // the next try may succeed
        }
    };
    showSwitch();
    setInterval(renew, 1000 * Number(body.dataset.seconds));
}
