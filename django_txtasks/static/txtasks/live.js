"use strict";
// Renews the part of the page that has data-txtasks-live, every data-seconds. Not in a hidden tab, not while a control
// inside has the focus, and not while the switch is off, which the browser remembers if it may store something. After
// two tries without success the part is grey, and its first line names the reason. django_txtasks.admin.base writes
// the attributes.
{
    const TRIES = 2;
    const PATIENCE = 10_000; // milliseconds
    const LINE = "txtasks-not-renewed";
    const part = document.querySelector("[data-txtasks-live]");
    const texts = JSON.parse(part.dataset.texts);
    const key = "txtasks.glance.off";
    let isOff = false;
    let isAsking = false;
    let missed = 0;
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
        const label = part.querySelector(".txg-refresh");
        if (!label) return;
        const box = label.querySelector("input");
        label.hidden = false;
        box.checked = !isOff;
        box.addEventListener("change", () => turn(!box.checked));
    };
    const filled = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);

    // Return the live part of an answer. Only the site's own page has one with this name, and repeats the number that
    // the request had; so another page, or a copy from a cache, is never shown.
    const partOf = (answer, asked) => {
        const page = answer.response?.contentType === "text/html" ? answer.response : null;
        const found = page?.querySelector("[data-txtasks-live]");
        const {pathname, origin} = new URL(answer.responseURL || location.href);
        if (answer.status === 0) throw new Error(texts.silent);
        if (!found && page?.querySelector("input[type=password]")) throw new Error(texts.login);
        if (answer.status !== 200) throw new Error(filled(texts.status, {status: answer.status}));
        if (found?.dataset.txtasksLive !== part.dataset.txtasksLive || origin !== location.origin)
            throw new Error(filled(texts.other, {place: pathname}));
        if (pathname === location.pathname && found.dataset.asked !== asked) throw new Error(texts.copy);
        return found;
    };
    // XMLHttpRequest parses the page itself: no script of it runs, and no policy of Trusted Types is needed.
    const ask = () => new Promise((resolve, reject) => {
        const asked = String(Date.now());
        const url = new URL(location.href);
        url.searchParams.set("fragment", asked);
        const request = new XMLHttpRequest();
        request.open("GET", url);
        request.responseType = "document";
        const timer = setTimeout(() => {
            reject(new Error(texts.slow));
            request.abort();
        }, PATIENCE);
        request.addEventListener("loadend", () => {
            clearTimeout(timer);
            try {
                resolve([partOf(request, asked), request.responseURL]);
            } catch (error) {
                reject(error);
            }
        });
        request.send();
    });
    const show = (found, address) => {
        const {pathname, href} = new URL(address);
        if (pathname !== location.pathname) return location.replace(href); // the task has ended
        if (!Number(found.dataset.seconds)) return location.reload(); // nothing more is awaited
        for (const script of found.querySelectorAll("script")) script.remove();
        part.replaceChildren(...document.adoptNode(found).childNodes);
        part.dataset.at = found.dataset.at;
        part.classList.remove("txtasks-stale");
        missed = 0;
        showSwitch();
    };
    const miss = (reason) => {
        missed += 1;
        if (missed < TRIES) return;
        const text = filled(texts.stale, {at: part.dataset.at, reason});
        let line = part.querySelector(`:scope > .${LINE}`);
        if (line?.textContent === text) return; // so that it is read out once
        line?.remove();
        line = document.createElement("p");
        line.className = LINE;
        line.setAttribute("role", "alert");
        line.textContent = text;
        part.prepend(line);
        part.classList.add("txtasks-stale");
    };
    const hasFocus = () => part.contains(document.activeElement);
    const renew = async () => {
        if ((isOff && part.querySelector(".txg-refresh")) || isAsking || document.hidden) return;
        if (hasFocus()) return miss(texts.focus);
        isAsking = true;
        try {
            const [found, address] = await ask();
            if (!hasFocus()) show(found, address);
        } catch (error) {
            miss(error.message);
        } finally {
            isAsking = false;
        }
    };
    showSwitch();
    setInterval(renew, 1000 * Number(part.dataset.seconds));
    document.addEventListener("visibilitychange", renew);
}
