# docker build -t zonemta . && docker run -v zonemta:/var/lib/zonemta -p 127.0.0.1:2525:2525 zonemta
FROM python:3.11-slim-bookworm AS build
COPY . /src
RUN python -m venv /opt/zonemta \
 && /opt/zonemta/bin/pip install --no-cache-dir --require-hashes -r /src/config/requirements.lock \
 && /opt/zonemta/bin/pip install --no-cache-dir --no-deps /src

FROM python:3.11-slim-bookworm
COPY --from=build /opt/zonemta /opt/zonemta
COPY config/docker.toml /etc/zonemta/zonemta.toml
RUN useradd --system --uid 1025 --no-create-home --shell /usr/sbin/nologin zonemta \
 && install -d -o zonemta -g zonemta -m 700 /var/lib/zonemta
ENV PATH=/opt/zonemta/bin:$PATH ZONEMTA_CONFIG=/etc/zonemta/zonemta.toml
USER zonemta
VOLUME /var/lib/zonemta
EXPOSE 2525
STOPSIGNAL SIGTERM
HEALTHCHECK CMD ["zonemta", "queue", "size", "--json"]
CMD ["zonemta", "run"]
